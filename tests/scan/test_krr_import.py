"""KRR's command lines as policies."""

from __future__ import annotations

import pytest
import yaml

from trimtab.api.optimizationpolicy import OptimizationPolicy
from trimtab.cli import run
from trimtab.errors import TrimtabError
from trimtab.scan.krr_import import convert_command
from trimtab.sizing.baselines.krr import KrrSettings

EVERYTHING = (
    "python krr.py simple -n shop -n bank -s app=web,tier==front -r Deployment --cpu_percentile 99 --history_duration=168 "
    "--memory-buffer-percentage 20 --points_required 50 --use_oomkill_data --allow-hpa --cpu-min 20 --mem-min 64 --timeframe_duration 5"
)


def test_import_keeps_every_setting_of_krr() -> None:
    policy, notes = convert_command(EVERYTHING)
    spec = OptimizationPolicy.model_validate(policy).spec
    settings = KrrSettings.model_validate(policy["spec"]["strategy"]["settings"])
    assert settings == KrrSettings(
        cpu_quantile=0.99,
        window=7 * 86400,
        memory_buffer=0.2,
        min_samples=50,
        use_oom=True,
        min_cpu=0.02,
        min_memory=64 << 20,
        step=300,
        allow_hpa=True,
    )
    assert spec.selector.namespaces.allow == ("shop", "bank")
    assert spec.selector.workload_types.include == ("Deployment",)
    assert policy["spec"]["selector"]["workloadSelector"] == {"matchLabels": {"app": "web", "tier": "front"}}
    assert notes == ()


def test_import_has_the_defaults_of_krr() -> None:
    policy, notes = convert_command("krr simple")
    assert notes == ()
    assert policy["spec"] == {
        "mode": "Recommend",
        "strategy": {"name": "krr", "settings": {"use_oom": False}},
    }


def test_import_notes_what_a_policy_cannot_say() -> None:
    policy, notes = convert_command("krr simple --slackoutput chat -n 'team-*'")
    assert notes == (
        "--slackoutput: has no counterpart",
        "--namespace: policies name namespaces without wildcards; use namespaceSelector",
    )
    assert "selector" not in policy["spec"]


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("", "names none of KRR's strategies"),
        ("krr simple --cpu_percentile many", "'many' of --cpu_percentile is not a number"),
        ("krr simple -n", "option -n has no value"),
        ("krr simple 'unclosed", "No closing quotation"),
    ],
)
def test_import_rejects_other_commands(command: str, problem: str) -> None:
    with pytest.raises(TrimtabError, match=problem):
        convert_command(command)


def test_command_prints_the_policy_and_its_notes(capsys: pytest.CaptureFixture[str]) -> None:
    command = f"{EVERYTHING} --slackoutput chat"
    assert run(["import", "krr", "--command", command]) == 0
    shown = capsys.readouterr()
    assert yaml.safe_load(shown.out) == convert_command(command).policy
    assert "--slackoutput" in shown.err
