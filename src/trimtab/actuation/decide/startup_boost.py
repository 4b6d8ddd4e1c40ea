"""Startup boost: more CPU for a pod until it is ready.

This is a decision about one pod as it is now. There is nothing to remember: the pod itself shows whether it
starts and whether it has more CPU than its own size.
"""

from __future__ import annotations

from dataclasses import dataclass

from trimtab.actuation.resources import Sizes, container_sizes, has_size
from trimtab.api.optimizationpolicy import StartupBoost
from trimtab.kube.kinds.pods import Pod, Resources


@dataclass(frozen=True, slots=True)
class BoostDecision:
    """The size that a pod should have now and the time of the next check; None if it has that size."""

    sizes: Sizes | None
    recheck_at: int | None = None


def decide_boost(pod: Pod, own: Sizes, rule: StartupBoost, *, now: int) -> BoostDecision:
    """Return more CPU while the pod starts, and its own size once it is ready or its time is over."""
    if _is_starting(pod, rule, now=now):
        raised = raise_cpu(own, rule.factor)
        return BoostDecision(raised if has_size(pod, own) and raised != own else None, _boost_end(pod, rule))
    return BoostDecision(own if has_more_cpu(pod, own) else None)


def is_boosted(pod: Pod, own: Sizes, rule: StartupBoost, *, now: int) -> bool:
    """Return whether the pod is starting and has more CPU for that, even if its template sets it."""
    return _is_starting(pod, rule, now=now) and has_size(pod, raise_cpu(own, rule.factor))


def _is_starting(pod: Pod, rule: StartupBoost, *, now: int) -> bool:
    return not pod.ready and now < _boost_end(pod, rule)


def _boost_end(pod: Pod, rule: StartupBoost) -> int:
    return (pod.started or pod.created) + int(rule.duration.seconds)


def raise_cpu(own: Sizes, factor: float) -> dict[str, Resources]:
    """Return sizes with more CPU. Request and limit grow together, so that the QoS class stays."""
    return {
        name: Resources.from_pairs(each.cpu.map(lambda amount: round(amount * factor)), each.memory)
        for name, each in own.items()
    }


def has_more_cpu(pod: Pod, own: Sizes) -> bool:
    """Return whether the pod differs from its own size by more CPU alone, as after a boost by any factor."""
    current = container_sizes(pod.containers)
    pairs = [(current[name], each) for name, each in own.items() if name in current]
    same_memory = all(now.memory == each.memory for now, each in pairs)
    no_less = all((now.cpu_request or 0) >= (each.cpu_request or 0) for now, each in pairs)
    return same_memory and no_less and not has_size(pod, own)
