"""The configuration by file, environment and flags, and the errors of invalid settings."""

import json
import math
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from trimtab.actuation.rate_limiter import DisruptionLimits
from trimtab.api import Duration
from trimtab.api.optimizationpolicy import OptimizationPolicySpec, PolicyMode
from trimtab.http_server import split_address
from trimtab.operator.config.loader import ConfigurationError, load_configuration
from trimtab.operator.config.model import Guardrail, OperatorConfig, restart_fields

FILE = "/etc/trimtab/config.yaml"


def load_error(
    text: str = "", *, environment: dict[str, str] | None = None, flags: tuple[str, ...] = ()
) -> str:
    with pytest.raises(ConfigurationError) as refused:
        load_configuration(text=text, origin=FILE, environment=environment or {}, flags=flags)
    return str(refused.value)


def test_config_default_excludes_system_namespaces() -> None:
    config = load_configuration(environment={})
    assert config == OperatorConfig()
    assert "kube-system" in config.limits.excluded_namespaces
    assert config.default_policy is None


def test_config_prefers_flags_to_environment_to_file() -> None:
    text = "disruptionLimits: {cluster: {maxConcurrent: 1, maxPerMinute: 1}, node: {maxConcurrent: 1}}"
    environment = {
        "TRIMTAB_DISRUPTION_LIMITS__CLUSTER__MAX_CONCURRENT": "2",
        "TRIMTAB_PACE__CLUSTER__PER_MINUTE": "2",
    }
    config = load_configuration(
        text=text, origin=FILE, environment=environment, flags=["disruptionLimits.cluster.maxPerMinute=3"]
    )
    assert (
        config.disruption_limits.cluster.max_concurrent,
        config.disruption_limits.cluster.max_per_minute,
        config.disruption_limits.node.max_concurrent,
    ) == (
        2,
        3,
        1,
    )
    assert config.disruption_limits.namespace == OperatorConfig().disruption_limits.namespace


def test_config_variables_hold_lists_maps_and_settings_of_a_provider() -> None:
    config = load_configuration(
        environment={
            "TRIMTAB_LIMITS__FORBIDDEN_MODES": "[Auto]",
            "TRIMTAB_LEADER_ELECTION": "{duration: 30s, renewDeadline: 20s}",
            "TRIMTAB_METRICS_SOURCE__SETTINGS__TOKEN_FILE": "/run/secrets/token",
            "TRIMTAB_DRY_RUN": "true",
        }
    )
    assert config.limits.forbidden_modes == (PolicyMode.AUTO,)
    assert config.leader_election.timing.duration == 30
    assert config.metrics_source.settings == {"token_file": "/run/secrets/token"}
    assert config.dry_run


def test_config_ignores_service_variables_of_kubernetes() -> None:
    links = {"TRIMTAB_WEBHOOK_SERVICE_HOST": "10.0.0.1", "TRIMTAB_WEBHOOK_PORT": "tcp://10.0.0.1:443"}
    more = {"TRIMTAB_WEBHOOK_PORT_443_TCP_ADDR": "10.0.0.1", "TRIMTAB_WEBHOOK_SERVICE_PORT_WEBHOOK": "443"}
    assert load_configuration(environment=links | more) == OperatorConfig()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "disruptionLimits: {cluster: {maxConcurrent: 0}}",
            "disruptionLimits.cluster.maxConcurrent: must be at least 1",
        ),
        ("dryrun: true", "dryrun: unknown field; check its spelling"),
        ("dryRun: 'true'", "dryRun: must be true or false"),
        (
            "limits: {maxCpu: 4x}",
            'limits.maxCpu: quantity "4x": unknown suffix "x"; write it like 500m, 1.5Gi or 1e9',
        ),
        ("limits: {forbiddenModes: [Audo]}", "limits.forbiddenModes[0]: must be one of"),
        (
            "metricsSource: {provider: abacus}",
            "metricsSource: usage source 'abacus' is not known; there are:",
        ),
        (
            "metricsSource: {settings: {uri: x}}",
            "metricsSource: usage source prometheus: uri: unknown field; check its spelling; there are: url,",
        ),
        (
            "additionalMetricsSources: [{provider: abacus}]",
            "additionalMetricsSources[0]: usage source 'abacus' is not known; there are:",
        ),
        (
            "additionalMetricsSources: [{provider: prometheus}]",
            'additionalMetricsSources[0].name: "prometheus" is the name of another source; give this one another',
        ),
        (
            "guardrails: [{name: errors, query: 'sum(rate(x))'}]",
            "guardrails[0].query: is not valid PromQL: expected type",
        ),
        (
            "guardrails: [{name: errors, query: 'x[5m]'}]",
            "guardrails[0].query: returns a range of samples; wrap",
        ),
        (
            "guardrails: [{name: errors, query: '\"x\"'}]",
            "guardrails[0].query: returns text; it must return a number",
        ),
        (
            "leaderElection: {renewDeadline: 20s}",
            "leaderElection: lease timing: duration of 15.0 s must be longer",
        ),
        (
            "leaderElection: {retryPeriod: 5}",
            "leaderElection.retryPeriod: duration must be text; write it like 90s",
        ),
        ("store: {url: 'mongo://x/y'}", "store.url: 'mongo://x/y' is not a supported store; give the path"),
        ("address: nowhere", 'address: "nowhere" is not an address to listen on; write it like :8080'),
        (
            "webhook: {url: 'http://x'}",
            'webhook.url: "http://x" is not a URL that an API server can call; write it',
        ),
        ("webhook: {failurePolicy: Maybe}", "webhook.failurePolicy: must be one of 'Fail' or 'Ignore'"),
        ("defaultPolicy: {weight: 0}", "defaultPolicy.weight: must be at least 1"),
        (
            "maintenanceWindows: [{timeZone: europe/berlin}]",
            'maintenanceWindows[0].timeZone: "europe/berlin" is not a known time zone, so the window would never',
        ),
        (
            "defaultPolicy: {updateStrategy: {windows: [{timeZone: CETX/Nowhere}]}}",
            "defaultPolicy.updateStrategy.windows[0].timeZone: ",
        ),
        (
            "maintenanceWindows: [{start: '25:00'}]",
            'maintenanceWindows[0].start: "25:00" must be a time of day',
        ),
        ("logs: {level: loud}", "logs.level: must be one of 'debug', 'info', 'warning' or 'error'"),
        ("a: [", "this is not valid YAML: while parsing"),
        ("- dryRun", "must be a map of settings, such as dryRun: true"),
    ],
)
def test_config_error_names_file_field_and_fix_in_one_line(text: str, line: str) -> None:
    error = load_error(text)
    assert error.startswith(f"{FILE}: {line}")
    assert "\n" not in error


def test_config_error_names_variable_or_flag() -> None:
    error = load_error(environment={"TRIMTAB_DISRUPTION_LIMITS__CLUSTER__MAX_CONCURRENT": "many"})
    assert (
        error
        == "TRIMTAB_DISRUPTION_LIMITS__CLUSTER__MAX_CONCURRENT: disruptionLimits.cluster.maxConcurrent: must be a whole number"
    )
    assert load_error(flags=("dryRun=perhaps",)) == "dryRun: must be true or false"
    assert load_error(flags=("dryRun",)) == "'dryRun': write a setting and its value, like dryRun=true"


def test_config_rejects_a_misspelt_variable() -> None:
    error = load_error(environment={"TRIMTAB_DRYRUN": "true"})
    assert error == "TRIMTAB_DRYRUN: the operator has no such setting; did you mean TRIMTAB_DRY_RUN?"
    error = load_error(environment={"TRIMTAB_PACE__CLUSTER__MAX_CONCURENT": "1"})
    assert error.endswith("did you mean TRIMTAB_DISRUPTION_LIMITS__CLUSTER__MAX_CONCURRENT?")


@pytest.mark.parametrize(
    "setting", ["token", "password", "bearer_token", "api_key", "clientSecret", "headers.Authorization"]
)
def test_config_accepts_secrets_only_as_files(setting: str) -> None:
    error = load_error(flags=(f"metricsSource.settings.{setting}=hunter2",))
    assert "a secret is not allowed here" in error
    assert f"metricsSource.settings.{setting}" in error
    assert "hunter2" not in error


@pytest.mark.parametrize("url", ["trimtab:hunter2@db/trimtab", "trimtab@db/trimtab?password=hunter2"])
def test_config_rejects_and_hides_a_password_in_the_store_url(url: str) -> None:
    error = load_error(f"store: {{url: 'postgresql://{url}'}}")
    assert "passfile" in error
    assert "hunter2" not in error


def test_config_reads_the_credentials_of_a_source_from_a_mounted_secret(tmp_path: Path) -> None:
    (tmp_path / "team-a").mkdir()
    for key in ("username", "password"):
        (tmp_path / "team-a" / key).write_text("x")
    given = OperatorConfig.model_validate(
        {
            "secretsFolder": str(tmp_path),
            "metricsSource": {"secret": "prometheus", "settings": {"url": "https://prometheus:9090"}},
            "additionalMetricsSources": [{"name": "live", "provider": "metrics-server"}],
        }
    )
    assert given.sources[""].settings == {
        "url": "https://prometheus:9090",
        "token_file": tmp_path / "prometheus" / "token",
    }
    assert given.find_source("prometheus:team-a").settings == {
        "url": "https://prometheus:9090",
        "username_file": tmp_path / "team-a" / "username",
        "password_file": tmp_path / "team-a" / "password",
    }
    assert given.find_source("live") == given.sources["live"]


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ({"provider": "metrics-server", "secret": "a"}, "metricsSource.secret: metrics-server takes no cred"),
        (
            {"secret": "a", "settings": {"token_file": "/t"}},
            "metricsSource.secret: settings.token_file is given",
        ),
        ({"secret": "../webhook"}, "metricsSource.secret: "),
    ],
)
def test_config_rejects_a_secret_that_has_no_effect(source: dict[str, Any], problem: str) -> None:
    assert problem in load_error(json.dumps({"metricsSource": source}))


def test_config_documents_the_fields_that_need_a_restart() -> None:
    assert set(restart_fields()) == {
        "metrics_source", "additional_metrics_sources", "learning", "store", "namespace", "leader_election", "webhook", "address",
            "watch_namespaces", "secrets_folder", "cost_annotations",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "step", "is_accepted"),
    [
        ({}, "15s", False),
        ({}, "59s", False),
        ({}, "60s", True),
        ({"step": 15}, "15s", False),  # it is polled each 30 s
        ({"step": 15, "interval": 15}, "15s", True),
        ({"interval": 120}, "1m", False),
    ],
)
@pytest.mark.parametrize("is_additional", [False, True])
def test_config_rejects_a_step_without_samples(
    settings: dict[str, float], step: str, *, is_accepted: bool, is_additional: bool
) -> None:
    """A quarter of the steps has a sample of metrics-server then, and nothing is ever reduced."""
    source = {"provider": "metrics-server", "settings": settings}
    place = {"additionalMetricsSources": [source]} if is_additional else {"metricsSource": source}
    text = json.dumps({"learning": {"step": step}, **place})
    with nullcontext() if is_accepted else pytest.raises(ConfigurationError) as raised:
        load_configuration(text=text, origin="config.yaml", environment={})
    if raised:
        line = str(raised.value)
        assert line.startswith("config.yaml: learning.step: metrics-server does not have a sample")


def test_config_source_is_found_by_name_or_provider() -> None:
    thanos = {"name": "thanos", "provider": "prometheus", "settings": {"url": "http://thanos:9090"}}
    config = OperatorConfig.model_validate(
        {"additionalMetricsSources": [{"provider": "metrics-server"}, thanos]}
    )
    assert config.source_names == ("prometheus", "metrics-server", "thanos")
    assert [each.provider for each in config.sources.values()] == [
        "prometheus",
        "metrics-server",
        "prometheus",
    ]

    def source_of(provider: str | None) -> str | None:
        spec = OptimizationPolicySpec.model_validate({"metricsConfig": {"provider": provider}})
        return config.resolve_source(spec)

    assert source_of(None) == source_of("prometheus") == ""
    assert source_of("thanos") == "thanos"
    assert source_of("abacus") is None


@pytest.mark.parametrize(
    ("address", "place"),
    [(":8080", (None, 8080)), ("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:9443", ("::1", 9443))],
)
def test_config_address_is_a_host_and_a_port(address: str, place: tuple[str | None, int]) -> None:
    assert split_address(load_configuration(environment={}, flags=[f"address='{address}'"]).address) == place


def test_config_reads_durations_as_policies_do() -> None:
    config = load_configuration(text="leaderElection: {leaseDuration: 1m}", environment={})
    assert config.leader_election.lease_duration == Duration.parse("60s")


def test_config_default_disruption_limits_are_those_of_actuation() -> None:
    assert OperatorConfig().disruption_limits.limits == DisruptionLimits()


def test_config_guardrail_without_a_number_is_unknown() -> None:
    guardrail = Guardrail(name="errors", query="errors", max=0.5)
    assert [guardrail.is_satisfied(number) for number in (0.5, 0.6, None, math.nan)] == [
        True,
        False,
        None,
        None,
    ]
