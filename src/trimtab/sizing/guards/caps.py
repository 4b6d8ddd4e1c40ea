"""What a request must lie between: the policy's bounds, the namespace's LimitRange and quota, the largest nodes.

Bounds and LimitRange hold whatever the usage; where they cannot, `conflict` says so and nothing is done. Quota and
nodes only stop growth: what runs already fits.
"""

from __future__ import annotations

from trimtab.api.optimizationpolicy import LimitMode
from trimtab.sizing.guards.change_size import round_down, round_up
from trimtab.sizing.guards.context import LET_LIMITS_FOLLOW, Case, Hold, Step
from trimtab.sizing.recommendation import amount_text
from trimtab.sizing.safe_minimum import AS_IT_IS, safe_minimums

LIMITS_FOLLOW = frozenset({LimitMode.MULTIPLIER, LimitMode.HEADROOM})
"""The modes in which the policy gives every container a limit."""


def pod_floor(amount: int, case: Case) -> Step | None:
    """A pod has at least so much, shared out over its containers."""
    caution = case.rules.caution
    least = caution.pod_cpu if case.resource == "cpu" else caution.pod_memory
    share = round_up(case.resource, -(-least // case.around.containers))
    if amount < share:
        return Step(share, f"a pod has at least {amount_text(case.resource, least)}", "operator")
    return None


def bounds(amount: int, case: Case) -> Step | None:
    """The policy's own bounds."""
    rule, source = case.rule, f"policy {case.rule.said_in}.{case.resource}"
    if amount < rule.least:
        return Step(rule.least, f"at least {amount_text(case.resource, rule.least)}", source)
    if rule.most is not None and amount > rule.most:
        return Step(rule.most, f"at most {amount_text(case.resource, rule.most)}", source)
    return None


def admission(amount: int, case: Case) -> Step | Hold | None:
    """What admission would refuse otherwise."""
    least, most = admitted(case)
    if most is not None and most < max(least, 1):
        return Hold(
            "the namespace leaves nothing to this container beside the others of its pod", "LimitRange"
        )
    if amount < least:
        return Step(least, f"at least {amount_text(case.resource, least)} in this namespace", "LimitRange")
    if most is not None and amount > most:
        return Step(most, f"at most {amount_text(case.resource, most)} in this namespace", "LimitRange")
    return None


def admitted(case: Case) -> tuple[int, int | None]:
    """The least and the most that the LimitRanges leave to this container beside the others of its pod."""
    mine, pod = case.container_range, case.pod_range
    least = max(mine.min, pod.min - case.others)
    most = mine.max
    if pod.max is not None:
        rest = round_down(case.resource, max(pod.max - case.others, 0))
        most = rest if most is None else min(most, rest)
    return least, most


def kept_limit(amount: int, case: Case) -> Step | None:
    """A request is never above its limit: one that is kept, or one that the namespace gives to containers without."""
    limit, source = case.limit, "limit"
    if limit is None and not _gets_limit(case):
        default, source = case.container_range.default, "LimitRange default"
        limit = None if default is None else max(default, case.request or 0)  # what runs was admitted
    elif case.rule.limit is not LimitMode.KEEP:
        return None
    if limit is None or amount <= limit:
        return None
    why = f"the limit stays at {amount_text(case.resource, limit)}; to go further {LET_LIMITS_FOLLOW}"
    return Step(limit, why, source)


def _gets_limit(case: Case) -> bool:
    """Whether a container without a limit is given one now: not before enough is known of its peaks."""
    if case.rule.limit not in LIMITS_FOLLOW:
        return False
    return not any(each.amount == AS_IT_IS for each in safe_minimums(case) if each.binds_limit)


def node(amount: int, case: Case) -> Step | Hold | None:
    """A pod larger than every node would never run."""
    rooms = case.around.nodes
    if not rooms:
        return None
    if case.resource == "cpu":
        most = max((room.cpu for room in rooms if room.memory >= case.beside), default=0)
    else:
        most = max((room.memory for room in rooms if room.cpu >= case.beside), default=0)
    why = "the largest node has no more for this pod"
    return _grow_at_most(amount, most - case.others, case, why=why, source="nodes")


def quota(amount: int, case: Case) -> Step | Hold | None:
    """What is left of the namespace's quota, shared out over the replicas."""
    around = case.around
    left = around.quota.cpu_request if case.resource == "cpu" else around.quota.memory_request
    if left is None:
        return None
    most = (case.request or 0) + max(left, 0) // max(around.replicas, 1)
    why = f"{amount_text(case.resource, left)} of quota are left for {around.replicas} replicas"
    return _grow_at_most(amount, most, case, why=why, source="ResourceQuota")


def _grow_at_most(amount: int, most: int, case: Case, *, why: str, source: str) -> Step | Hold | None:
    stop = max(round_down(case.resource, max(most, 0)), case.request or 0)
    if amount <= stop:
        return None
    return Step(stop, why, source) if stop > 0 else Hold(why, source)
