"""Shrink a failing case by delta reduction: remove parts as long as the same invariant still fails.

Faults go first, in halves and then one by one; then workloads, containers, policies and settings, replicas, and the days
that nothing needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from trimtab.lab.faults.companions import Companions
from trimtab.lab.faults.corpus import AnyCase, run_any_case
from trimtab.lab.faults.node_runner import NodeCase
from trimtab.lab.faults.node_world import NodeWorld
from trimtab.lab.faults.plan import FaultPlan
from trimtab.lab.faults.worlds import WorkloadDraw, WorldSpec

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
        yield replace(world, policies=_without(world.policies, name))
    for companions in _iter_smaller_companions(world.companions):
        yield replace(world, companions=companions)
    for place, workload in enumerate(world.workloads):
        for each in _iter_smaller_workloads(workload):
            yield replace(world, workloads=(*world.workloads[:place], each, *world.workloads[place + 1 :]))
    for policies in _iter_smaller_policies(world.policies):
        yield replace(world, policies=policies)
    yield from _iter_smaller_settings(world)


def _iter_smaller_settings(world: WorldSpec) -> Iterator[WorldSpec]:
    replace = msgspec.structs.replace
    for name in world.config:
        yield replace(world, config=_without(world.config, name))
    simplest: dict[str, float] = {"replicas": 1, "workers": 1, "noise": 0.0}
    for field, value in simplest.items():
        if getattr(world, field) != value:
            yield replace(world, **{field: value})


def _iter_smaller_companions(companions: Companions) -> Iterator[Companions]:
    for field in companions.__struct_fields__:
        for objects in _iter_without_parts(getattr(companions, field)):
            yield msgspec.structs.replace(companions, **{field: objects})


def _iter_smaller_workloads(workload: WorkloadDraw) -> Iterator[WorkloadDraw]:
    replace = msgspec.structs.replace
    if workload.replicas > 1:
        yield replace(workload, replicas=1)
    for containers in _iter_without_parts(workload.containers):
        if containers:
            yield replace(workload, containers=containers)
    if any(each.shape != "flat" for each in workload.containers):
        yield replace(workload, containers=tuple(replace(each, shape="flat") for each in workload.containers))


def _iter_smaller_policies(policies: dict[str, dict[str, Any]]) -> Iterator[dict[str, dict[str, Any]]]:
    for name, policy in policies.items():
        for field in policy:
            yield {**policies, name: _without(policy, field)}


def _without(parts: dict[str, T], name: str) -> dict[str, T]:
    return {key: each for key, each in parts.items() if key != name}
