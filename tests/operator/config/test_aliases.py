"""The ConfigMap and the arguments of the OptiPod document, as aliases of the operator's settings."""

from pathlib import Path
from typing import Any

import pytest

from harness.builders.records import policy
from trimtab.cli import run
from trimtab.errors import TrimtabError
from trimtab.operator.config import reloader
from trimtab.operator.config.loader import ConfigurationError, load_configuration
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.config.reloader import ConfigReloader
from trimtab.operator.policy.resolver import build_effective_policy

OPTIPOD = """
dryRun: false
metricsProvider: prometheus
prometheusURL: http://prometheus:9090
leaderElection: true
reconciliationInterval: 7m
"""


def load(text: str, *flags: str) -> OperatorConfig:
    return load_configuration(text=text, origin="config.yaml", environment={}, flags=flags)


def test_config_of_optipod_sets_everything_that_it_says() -> None:
    config = load(OPTIPOD)
    assert (config.metrics_source.provider, config.metrics_source.settings) == (
        "prometheus",
        {"url": "http://prometheus:9090"},
    )
    assert not config.dry_run
    assert config.leader_election.enabled
    assert build_effective_policy(policy(), config).reconciliation_interval == 420
    assert build_effective_policy(policy(reconciliationInterval="1m"), config).reconciliation_interval == 60
    assert load("dryRun: true").dry_run
    assert not load("leaderElection: false").leader_election.enabled


def test_config_of_optipod_keeps_its_prometheus_beside_another_provider() -> None:
    config = load("{metricsProvider: metrics-server, prometheusURL: 'http://prometheus:9090'}")
    assert config.source_names == ("metrics-server", "prometheus")
    assert config.sources["prometheus"].settings["url"] == "http://prometheus:9090"


def test_config_of_optipod_keeps_the_other_settings_of_the_source() -> None:
    config = load("{prometheusURL: 'http://p', metricsSource: {settings: {token_file: /token}}}")
    assert config.metrics_source.settings == {"url": "http://p", "token_file": "/token"}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "{metricsProvider: kubelet, metricsSource: {provider: prometheus}}",
            "config.yaml: metricsProvider: metricsSource.provider is set too; keep one of the two",
        ),
        (
            "{prometheusURL: 'http://p', metricsSource: {settings: {url: 'http://q'}}}",
            "config.yaml: prometheusURL: metricsSource.settings.url is set too; keep one of the two",
        ),
        (
            "metricsProvider: abacus",
            "config.yaml: metricsSource: usage source 'abacus' is not known; there are:",
        ),
        ("leaderElection: soon", "config.yaml: leaderElection: "),
    ],
)
def test_config_rejects_an_alias_that_it_cannot_follow(text: str, line: str) -> None:
    with pytest.raises(ConfigurationError) as rejected:
        load(text)
    assert str(rejected.value).startswith(line)


def load_by_command(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> OperatorConfig:
    """Return the configuration with which `trimtab operator` would start."""
    loaded: list[OperatorConfig] = []

    class Recorder(ConfigReloader):
        def __init__(self, path: Path | None, **settings: Any) -> None:
            super().__init__(path, **settings)
            loaded.append(self.current)
            raise TrimtabError("the operator does not start here")

    monkeypatch.setattr(reloader, "ConfigReloader", Recorder)
    assert run(["operator", *arguments]) == 2
    return loaded[0]


def test_operator_command_accepts_the_arguments_of_optipod(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("{dryRun: true, leaderElection: false}")
    arguments = ["--metrics-addr=:8181", "--enable-leader-election", "--metrics-provider=metrics-server"]
    config = load_by_command(["--config", str(file), *arguments, "--dry-run=false"], monkeypatch)
    assert (config.address, config.metrics_source.provider) == (":8181", "metrics-server")
    assert config.leader_election.enabled
    assert not config.dry_run
    untouched = load_by_command(["--config", str(file)], monkeypatch)
    assert untouched.dry_run
    assert not untouched.leader_election.enabled
    assert load_by_command(["--dry-run"], monkeypatch).dry_run
