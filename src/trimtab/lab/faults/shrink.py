"""Shrink a failing case by delta reduction: remove parts as long as the same invariant still fails.

Faults go first, in halves and then one by one; then workloads, containers, policies and settings, replicas, and the days
that nothing needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

from trimtab.lab.faults.corpus import AnyCase, run_any_case
from trimtab.lab.faults.node_runner import NodeCase
from trimtab.lab.faults.node_world import NodeWorld
from trimtab.lab.faults.plan import FaultPlan
from trimtab.lab.faults.worlds import WorldSpec

T = TypeVar("T")
MAX_RUNS = 120
"""The number of runs after which shrinking stops."""


async def shrink_case(
    case: AnyCase, invariant: str, *, on_progress: Callable[[str], None] = lambda _: None
) -> AnyCase:
    """Return a smaller case that violates the same invariant."""
    runs = 0

    async def fails(candidate: AnyCase) -> bool:
        nonlocal runs
        runs += 1
        try:
            result = await run_any_case(candidate)
        except Exception:  # noqa: BLE001 - a part that others need was removed
            return False
        return any(each.invariant == invariant for each in result.violations)

    shrinking = True
    while shrinking and runs < MAX_RUNS:
        shrinking = False
        for candidate in _iter_smaller(case):
            if runs >= MAX_RUNS:
                break
            if await fails(candidate):
                case, shrinking = candidate, True
                on_progress(f"{runs} runs: {describe_case(case)}")
                break
    return case


def describe_case(case: AnyCase) -> str:
    """Describe the size of a case."""
    faults = ", ".join(fault.kind for fault in case.plan.faults) or "no faults"
    world = case.world
    if isinstance(world, NodeWorld):
        return f"{len(world.pods)} pods, {len(world.policies)} policies, {world.seconds} seconds; {faults}"
    return f"{len(world.workloads)} workloads, {len(world.policies)} policies, {world.days:g} days; {faults}"


def _iter_smaller(case: AnyCase) -> Iterator[AnyCase]:
    """Iterate over smaller cases, those with the largest parts removed first."""
    if isinstance(case, NodeCase):
        yield from _iter_smaller_nodes(case)
        return
    for faults in _iter_without_parts(case.plan.faults):
        yield msgspec.structs.replace(case, plan=FaultPlan(faults=faults))
    for world in _iter_smaller_worlds(case.world):
        yield msgspec.structs.replace(case, world=world)


def _iter_smaller_nodes(case: NodeCase) -> Iterator[NodeCase]:
    replace = msgspec.structs.replace
    for faults in _iter_without_parts(case.plan.faults):
        yield replace(case, plan=FaultPlan(faults=faults))
    for pods in _iter_without_parts(case.world.pods):
        yield replace(case, world=replace(case.world, pods=pods))
    for policies in _iter_without_parts(case.world.policies):
        yield replace(case, world=replace(case.world, policies=policies))


def _iter_without_parts(parts: Sequence[T]) -> Iterator[tuple[T, ...]]:
    size = len(parts)
    while size:
        for begin in range(0, len(parts), size):
            yield (*parts[:begin], *parts[begin + size :])
        size //= 2


def _iter_smaller_worlds(world: WorldSpec) -> Iterator[WorldSpec]:
    replace = msgspec.structs.replace
    for workloads in _iter_without_parts(world.workloads):
        if workloads:
            yield replace(world, workloads=workloads)
    for name in world.policies:
        yield replace(world, policies={key: each for key, each in world.policies.items() if key != name})
    for name in world.config:
        yield replace(world, config={key: each for key, each in world.config.items() if key != name})
    for place, workload in enumerate(world.workloads):
        smaller = [replace(workload, replicas=1)] if workload.replicas > 1 else []
        smaller += [
            replace(workload, containers=each) for each in _iter_without_parts(workload.containers) if each
        ]
        smaller += (
            [replace(workload, containers=tuple(replace(each, shape="flat") for each in workload.containers))]
            if any(each.shape != "flat" for each in workload.containers)
            else []
        )
        for each in smaller:
            yield replace(world, workloads=(*world.workloads[:place], each, *world.workloads[place + 1 :]))
    for name, policy in world.policies.items():
        for field in policy:
            without = {key: each for key, each in policy.items() if key != field}
            yield replace(world, policies={**world.policies, name: without})
    if world.noise:
        yield replace(world, noise=0.0)
