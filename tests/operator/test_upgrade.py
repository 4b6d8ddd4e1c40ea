"""Objects and configuration of the first version keep their meaning, and their authors learn the present names."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from trimtab.api import OptimizationPolicy
from trimtab.api.crd import build_crd
from trimtab.api.duration import Duration
from trimtab.api.model import upgrade_fields
from trimtab.api.optimizationpolicy import HpaMode, OptimizationPolicySpec
from trimtab.kube.kinds.policies import Policy, policy_projection
from trimtab.operator.config.loader import load_configuration
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.policy.status import StatusContext, build_policy_status
from trimtab.operator.policy_matching import OverlapStats
from trimtab.operator.webhook.review import AdmissionRequest
from trimtab.operator.webhook.server import AdmissionHandlers

FIRST_SPEC: dict[str, Any] = {
    "mode": "Auto",
    "updateStrategy": {"besideHpa": "Hold", "canary": {"percent": 20, "patience": "1h"}},
}
FIRST_CONFIG = """
dryRun: true
pace: {cluster: {atOnce: 7, perMinute: 9}, node: {atOnce: 2}}
otherMetricsSources: [{name: second, provider: metrics-server}]
leaderElection: {duration: 30s, renewDeadline: 20s, retry: 3s}
webhook: {certificateLasts: 48h}
limits: {untouchedNamespaces: [vault]}
defaultPolicy: {updateStrategy: {besideHpa: Hold}}
intents:
  stale: 2m
  utilities: {latency: 3}
  states: 77
  planning: 2s
  learnEvery: 10m
  lookBack: 24h
  plugins: {known: [{type: actuator, name: power, endpoint: "unix:/run/p.sock"}]}
  guardrails: [{capCpu: "4", capMemory: 8Gi, capPods: 40, forbidden: [rmPod]}]
"""
PRESENT_CONFIG = """
dryRun: true
disruptionLimits: {cluster: {maxConcurrent: 7, maxPerMinute: 9}, node: {maxConcurrent: 2}}
additionalMetricsSources: [{name: second, provider: metrics-server}]
leaderElection: {leaseDuration: 30s, renewDeadline: 20s, retryPeriod: 3s}
webhook: {certificateValidity: 48h}
limits: {excludedNamespaces: [vault]}
defaultPolicy: {updateStrategy: {hpaMode: Hold}}
intents:
  maxSampleAge: 2m
  objectiveWeights: {latency: 3}
  maxStates: 77
  planningTimeout: 2s
  learningInterval: 10m
  learningPeriod: 24h
  plugins: {static: [{type: actuator, name: power, endpoint: "unix:/run/p.sock"}]}
  guardrails: [{maxTotalCpu: "4", maxTotalMemory: 8Gi, maxTotalPods: 40, forbiddenActuators: [rmPod]}]
"""


def stored_policy(spec: dict[str, Any]) -> Policy:
    projection = policy_projection()
    wire = {
        "metadata": {"namespace": "shop", "name": "web", "uid": "u", "resourceVersion": "1"},
        "spec": spec,
    }
    return projection.project(msgspec.json.decode(msgspec.json.encode(wire), type=projection.wire_type))


def server_defaults(schema: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Fill in defaults as the API server does when it reads an object that an older version stored."""
    filled = dict(given)
    for name, field in schema.get("properties", {}).items():
        if name not in filled and "default" in field:
            filled[name] = field["default"]
        if isinstance(filled.get(name), dict):
            filled[name] = server_defaults(field, filled[name])
    return filled


def spec_schema() -> dict[str, Any]:
    schema = build_crd(OptimizationPolicy)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return dict(schema["properties"]["spec"])


@pytest.mark.parametrize("is_defaulted", [False, True])
def test_policy_of_the_first_version_keeps_its_settings(*, is_defaulted: bool) -> None:
    spec = server_defaults(spec_schema(), FIRST_SPEC) if is_defaulted else FIRST_SPEC
    found = stored_policy(spec)
    assert not found.problem
    assert found.spec.update_strategy.hpa_mode is HpaMode.HOLD
    assert found.spec.update_strategy.canary.evidence_timeout == Duration.parse("1h")
    assert found.spec.update_strategy.canary.percent == 20


def test_policy_field_under_its_present_name_wins_over_the_old_one() -> None:
    both = {"updateStrategy": {"canary": {"patience": "1h", "evidenceTimeout": "2h"}}}
    found = OptimizationPolicySpec.model_validate(both)
    assert found.update_strategy.canary.evidence_timeout == Duration.parse("2h")


def test_policy_status_lists_deprecated_fields() -> None:
    def conditions(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
        status = build_policy_status(
            stored_policy(spec),
            {},
            overlap=OverlapStats(),
            problem="",
            context=StatusContext(now=0.0),
            before={},
        )
        return {each["type"]: each for each in status["conditions"]}

    deprecated = conditions(FIRST_SPEC)["DeprecatedFields"]
    assert (deprecated["status"], deprecated["reason"]) == ("True", "FieldsRenamed")
    assert "spec.updateStrategy.besideHpa is deprecated" in deprecated["message"]
    assert "use spec.updateStrategy.canary.evidenceTimeout" in deprecated["message"]
    assert "DeprecatedFields" not in conditions({"mode": "Auto"})


def test_admission_warns_of_deprecated_fields_and_admits_them() -> None:
    handlers = AdmissionHandlers(config=OperatorConfig, policies=tuple)
    manifest = {"kind": "OptimizationPolicy", "metadata": {"name": "web"}, "spec": FIRST_SPEC}
    answer = handlers.validate(AdmissionRequest(uid="1", operation="CREATE", object=manifest), ())
    assert answer.is_allowed
    assert [warning.partition(" ")[0] for warning in answer.warnings] == [
        "spec.updateStrategy.besideHpa",
        "spec.updateStrategy.canary.patience",
    ]


def test_configuration_of_the_first_version_has_the_same_effect_and_is_logged() -> None:
    with capture_logs() as logs:
        old = load_configuration(text=FIRST_CONFIG, origin="config.yaml", environment={})
    assert old == load_configuration(text=PRESENT_CONFIG, environment={})
    renamed = {each["setting"]: each["use"] for each in logs if each["event"] == "config.setting_renamed"}
    assert renamed["pace"] == "disruptionLimits"
    assert renamed["disruptionLimits.cluster.atOnce"] == "disruptionLimits.cluster.maxConcurrent"
    assert renamed["defaultPolicy.updateStrategy.besideHpa"] == "defaultPolicy.updateStrategy.hpaMode"
    assert renamed["intents.guardrails[0].capPods"] == "intents.guardrails[0].maxTotalPods"
    with capture_logs() as logs:
        load_configuration(text=PRESENT_CONFIG, environment={})
    assert not logs


def test_variables_and_flags_of_the_first_version_override_the_file() -> None:
    with capture_logs() as logs:
        config = load_configuration(
            text="disruptionLimits: {cluster: {maxConcurrent: 1, maxPerMinute: 1}}",
            environment={"TRIMTAB_PACE__CLUSTER__AT_ONCE": "4"},
            flags=["pace.cluster.perMinute=5"],
        )
    limits = config.disruption_limits.cluster
    assert (limits.max_concurrent, limits.max_per_minute) == (4, 5)
    assert {each["use"] for each in logs} == {
        "TRIMTAB_DISRUPTION_LIMITS__CLUSTER__MAX_CONCURRENT",
        "disruptionLimits.cluster.maxPerMinute",
    }


@given(
    percent=st.integers(1, 100),
    hpa_mode=st.sampled_from(["Rescale", "Hold"]),
    timeout=st.sampled_from(["30m0s", "30m", "1s", "24h"]),
    is_defaulted=st.booleans(),
)
def test_upgraded_spec_means_the_same_as_the_stored_one(
    percent: int, hpa_mode: str, timeout: str, *, is_defaulted: bool
) -> None:
    old = {"updateStrategy": {"besideHpa": hpa_mode, "canary": {"percent": percent, "patience": timeout}}}
    stored = server_defaults(spec_schema(), old) if is_defaulted else old
    upgraded, renamed = upgrade_fields(OptimizationPolicySpec, stored)
    assert len(renamed) == 2
    assert OptimizationPolicySpec.model_validate(stored) == OptimizationPolicySpec.model_validate(upgraded)
    found = OptimizationPolicySpec.model_validate(upgraded).update_strategy
    assert (found.hpa_mode, found.canary.evidence_timeout) == (hpa_mode, Duration.parse(timeout))
    assert upgrade_fields(OptimizationPolicySpec, upgraded) == (upgraded, [])
