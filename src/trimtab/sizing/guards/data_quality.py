"""No data, no deed: whether what is known of a container is enough, fresh and possible.

Where it is not, the container keeps what it has and the explanation says what is missing. A kill for memory passes
the gate: it is evidence by itself.
"""

from __future__ import annotations

from math import isnan

from trimtab.api.optimizationpolicy import BesideHpa
from trimtab.plural import counted
from trimtab.sizing.guards.context import Case, Hold
from trimtab.sizing.qos import BEST_EFFORT
from trimtab.sizing.recommendation import amount_text
from trimtab.sizing.stats.plausibility import CPU_MOST, MEMORY_MOST

_USAGE = "usage"


def gate(case: Case) -> Hold | None:
    """Why this resource cannot be sized now; None: it can."""
    return _evidence(case) or _believable(case)


def left_alone(case: Case) -> Hold | None:
    """Why this resource is not for us to size, whatever is known of it."""
    rules, around = case.rules, case.around
    if not case.rule.sized:
        return Hold("the policy leaves it alone", "policy containers")
    if rules.keep_qos and around.qos == BEST_EFFORT:
        why = "the pod is BestEffort, and requests would change its QoS class"
        return Hold(why, "policy updateStrategy.keepQosClass")
    if rules.beside_hpa is BesideHpa.HOLD:
        for scaler in around.autoscalers:
            if scaler.resource == case.resource and scaler.container in {None, case.container}:
                why = f"HPA {scaler.name} holds its utilisation"
                return Hold(why, "policy updateStrategy.besideHpa")
    return None


def _evidence(case: Case) -> Hold | None:
    evidence, caution = case.evidence, case.rules.caution
    if evidence.samples < caution.samples:
        return Hold(f"{counted(evidence.samples, 'sample')}, {caution.samples} are needed", _USAGE)
    if evidence.runs_on and case.now - evidence.last > caution.stale:
        return Hold(f"the last sample is {_minutes(case.now - evidence.last)} old", _USAGE)
    if evidence.memory_peak == 0:
        return Hold("no process runs in 0 bytes of memory: the measurement is wrong", _USAGE)
    return None


def _believable(case: Case) -> Hold | None:
    target = case.ask.target
    if isnan(target):
        return Hold("the strategy has not seen enough to say", "strategy")
    is_cpu = case.resource == "cpu"
    if not 0 <= target <= (CPU_MOST * 1000 if is_cpu else MEMORY_MOST):
        return Hold(f"the strategy asks for the impossible: {target:.3g}", "strategy")
    peak = case.evidence.cpu_peak if is_cpu else case.evidence.memory_peak
    most = max((room.cpu if is_cpu else room.memory for room in case.around.nodes), default=0)
    if peak is not None and peak > 2 * most > 0:
        shown = amount_text(case.resource, peak)
        why = f"its peak of {shown} is more than any node has: the measurement is wrong, or its node is gone"
        return Hold(why, _USAGE)
    return None


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min"
