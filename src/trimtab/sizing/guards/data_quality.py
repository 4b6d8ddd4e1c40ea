"""Check that the evidence about a container is sufficient, fresh and plausible: no data, no action.

Otherwise the container keeps its size and the explanation names what is missing. An OOM kill passes the
check: it is evidence by itself.
"""

from __future__ import annotations

from math import isnan

from trimtab.api.optimizationpolicy import HpaMode
from trimtab.api.quantity import format_step
from trimtab.kube.kinds.pod_requests import BEST_EFFORT
from trimtab.plural import pluralize
from trimtab.sizing.guards.context import GuardContext, NoChange
from trimtab.sizing.policy_rules import describe_qos_obstacle
from trimtab.sizing.state import MAX_PLAUSIBLE_CPU, MAX_PLAUSIBLE_MEMORY

MAX_SAMPLE_AGE = 900.0
"""Seconds after which the last sample of a running container is too old: the source is down or wrong."""
_USAGE = "usage"


def check_data_quality(context: GuardContext) -> NoChange | None:
    """Return why this resource cannot be sized now; None if it can."""
    return _check_evidence(context) or _check_plausibility(context)


def exclusion_reason(context: GuardContext) -> NoChange | None:
    """Return why Trimtab does not size this resource, whatever is known about it."""
    rules, around = context.rules, context.constraints
    if not context.rule.is_controlled:
        return NoChange("the policy excludes it", "policy containers")
    # Kubernetes rejects a resize that changes the QoS class of a running pod, so that this could never be
    # done in place.
    if around.qos_class == BEST_EFFORT and (
        why := describe_qos_obstacle(BEST_EFFORT, keeps_qos=rules.keep_qos, keeps_limits=True)
    ):
        return NoChange(why, "policy updateStrategy.keepQosClass")
    holds = "policy updateStrategy.hpaMode" if rules.hpa_mode is HpaMode.HOLD else ""
    if holds or context.proposed.leaves_autoscaled:
        for scaler in around.autoscalers:
            if scaler.resource == context.resource and scaler.container in {None, context.container}:
                why = f"HPA {scaler.name} scales on its utilization"
                return NoChange(why, holds or "strategy setting allow_hpa")
    return None


def _check_evidence(context: GuardContext) -> NoChange | None:
    evidence, least = context.evidence, context.rules.safety.min_samples
    if evidence.samples < least:
        return NoChange(f"{pluralize(evidence.samples, 'sample')}, {least} are needed", _USAGE)
    # A Job's container is between two runs most of the time: its last sample may be old.
    if evidence.is_long_running and context.now - evidence.last_sample_at > MAX_SAMPLE_AGE:
        return NoChange(
            f"the last sample is {_format_minutes(context.now - evidence.last_sample_at)} old; check that its node is scraped",
            _USAGE,
        )
    if evidence.memory_peak == 0:
        return NoChange(
            "the measured memory is 0 bytes, which no process can have; check the usage source", _USAGE
        )
    return None


def _check_plausibility(context: GuardContext) -> NoChange | None:
    target = context.proposed.target
    if isnan(target):
        return NoChange("the strategy has too little data", "strategy")
    is_cpu = context.resource == "cpu"
    if not 0 <= target <= (MAX_PLAUSIBLE_CPU * 1000 if is_cpu else MAX_PLAUSIBLE_MEMORY):
        return NoChange(f"the strategy returned an impossible target: {target:.3g}", "strategy")
    peak = context.evidence.cpu_peak if is_cpu else context.evidence.memory_peak
    most = max((node.cpu if is_cpu else node.memory for node in context.constraints.nodes), default=0)
    # Twice: a container can burst beyond the allocatable amount of its node, up to the node's capacity.
    if peak is not None and peak > 2 * most > 0:
        shown = format_step(context.resource, peak)
        why = f"its peak of {shown} is more than any node has; check the usage source"
        return NoChange(why, _USAGE)
    return None


def _format_minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min"
