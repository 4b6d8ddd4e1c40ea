"""The alerts that come with the operator: Prometheus' own tool says when each is raised, and when none is."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness import UnavailableError, packages

ROOT = Path(__file__).parents[3]
RULES = ROOT / "deploy" / "prometheus" / "alerts.yaml"

CALM = {
    'trimtab_lease_leading{lease="operator",instance="a"}': "1x800",
    'trimtab_lease_leading{lease="operator",instance="b"}': "0x800",
    "trimtab_emergency_stop_unreadable": "0x800",
    'trimtab_reconciliation_errors_total{policy="shop/web",error_type="Unreachable"}': "2x800",
    'trimtab_containers_without_samples{provider="prometheus"}': "0x700 2x20 0x80",
    'trimtab_informer_lag_seconds{resource="pods"}': "30x800",
    'trimtab_informer_drift_total{resource="pods"}': "0+1x1 1x800",
    'trimtab_reverts_total{policy="shop/web",intent="",reason="worse"}': "0+1x1 1x800",
    'trimtab_reverts_total{policy="shop/web",intent="",reason="overtaken"}': "0+0.1x800",
    'trimtab_oom_kills_total{policy="shop/web"}': "0+1x1 1x800",
    'trimtab_config_reloads_total{result="rejected"}': "0x800",
    'trimtab_webhook_reviews_total{webhook="validate",answer="failed"}': "0x800",
    "trimtab_webhook_certificate_expiry_timestamp_seconds": "7000000x800",
    'trimtab_intent_violation_seconds_total{namespace="shop"}': "0+6x800",
    'trimtab_intent_plugins{type="actuator",answers="yes"}': "2x800",
    'trimtab_agent_rounds_total{instance="n"}': "0+60x800",
    'trimtab_agent_rounds_late_total{instance="n"}': "0+1x800",
    'trimtab_node_writes_rejected_total{instance="n",knob="cpu.max"}': "0+1x800",
    'trimtab_node_strategy_failures_total{instance="n",strategy="cpusuppress"}': "1x800",
}
"""A minute a step, of a cluster in which all is well but for what happens now and then."""

TROUBLE = {
    "TrimtabNoLeader": ('trimtab_lease_leading{lease="operator",instance="a"}', "0x800"),
    "TrimtabReconcileErrors": (
        'trimtab_reconciliation_errors_total{policy="shop/web",error_type="Unreachable"}',
        "0+1x800",
    ),
    "TrimtabSamplesMissing": ('trimtab_containers_without_samples{provider="prometheus"}', "0x600 2x200"),
    "TrimtabStopped": ("trimtab_emergency_stop", "1x800"),
    "TrimtabStopUnreadable": ("trimtab_emergency_stop_unreadable", "1x800"),
    "TrimtabInformerStale": ('trimtab_informer_lag_seconds{resource="pods"}', "0+60x800"),
    "TrimtabCacheDrift": ('trimtab_informer_drift_total{resource="pods"}', "0+0.1x800"),
    "TrimtabChangesReverted": (
        'trimtab_reverts_total{policy="shop/web",intent="",reason="worse"}',
        "0+0.1x800",
    ),
    "TrimtabOOMKills": ('trimtab_oom_kills_total{policy="shop/web"}', "0+0.1x800"),
    "TrimtabConfigurationRejected": ('trimtab_config_reloads_total{result="rejected"}', "0x700 1x100"),
    "TrimtabWebhookFailing": (
        'trimtab_webhook_reviews_total{webhook="validate",answer="failed"}',
        "0x715 1x85",
    ),
    "TrimtabCertificateExpiring": ("trimtab_webhook_certificate_expiry_timestamp_seconds", "500000x800"),
    "TrimtabObjectiveMissed": ('trimtab_intent_violation_seconds_total{namespace="shop"}', "0+60x800"),
    "TrimtabPluginUnavailable": ('trimtab_intent_plugins{type="actuator",answers="no"}', "1x800"),
    "TrimtabAgentRoundsLate": ('trimtab_agent_rounds_late_total{instance="n"}', "0+30x800"),
    "TrimtabAgentWritesRejected": (
        'trimtab_node_writes_rejected_total{instance="n",knob="cpu.max"}',
        "0+30x800",
    ),
    "TrimtabAgentStrategyFailing": (
        'trimtab_node_strategy_failures_total{instance="n",strategy="cpusuppress"}',
        "0+1x800",
    ),
}


def rules() -> dict[str, dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


@pytest.fixture(scope="module", autouse=True)
def promtool() -> None:
    try:
        packages.install("prometheus")
    except UnavailableError as why:
        pytest.skip(str(why))


def raised_alerts(tmp_path: Path, series: dict[str, str]) -> set[str]:
    """The alerts that Prometheus raises after twelve hours of these series."""
    asked = [{"eval_time": "12h", "alertname": name, "exp_alerts": []} for name in rules()]
    input_series = [{"series": name, "values": values} for name, values in series.items()]
    body = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "5m",
        "tests": [{"interval": "1m", "input_series": input_series, "alert_rule_test": asked}],
    }
    file = tmp_path / "test.yaml"
    file.write_text(yaml.safe_dump(body))
    done = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True, check=False)
    assert "alertname" in done.stdout + done.stderr or done.returncode == 0, done.stderr
    return set(re.findall(r"alertname: ?(\w+)", done.stdout + done.stderr))


def test_alerts_are_silent_when_all_is_well(tmp_path: Path) -> None:
    assert raised_alerts(tmp_path, CALM) == set()


def test_alerts_are_silent_without_scrapes(tmp_path: Path) -> None:
    assert raised_alerts(tmp_path, {}) == {"TrimtabNoLeader"}


def test_alerts_distinguish_clusters_of_one_prometheus(tmp_path: Path) -> None:
    leads = {f'trimtab_lease_leading{{lease="operator",cluster="{each}"}}': "1x800" for each in "ab"}
    now_and_then = {
        f'trimtab_oom_kills_total{{policy="shop/web",cluster="{each}"}}': "0x690 2x110" for each in "ab"
    }
    assert raised_alerts(tmp_path, leads | now_and_then) == set()
    one_alone = {next(iter(leads)): "0x800"}
    assert raised_alerts(tmp_path, leads | one_alone) == {"TrimtabNoLeader"}


def test_alerts_each_have_a_test_series() -> None:
    assert TROUBLE.keys() == rules().keys()


@pytest.mark.parametrize("alert", sorted(TROUBLE))
def test_alert_fires_for_its_problem_alone(alert: str, tmp_path: Path) -> None:
    name, values = TROUBLE[alert]
    assert raised_alerts(tmp_path, CALM | {name: values}) == {alert}


def test_alert_text_names_the_problem() -> None:
    for alert, rule in rules().items():
        assert rule["annotations"]["summary"]
        assert rule["labels"] == {"severity": "info" if alert == "TrimtabStopped" else "warning"}
