"""Kubernetes 1.33 resizes pods in place and refuses to lower their memory limits; what else can be changed is."""

from typing import Any

import pytest
from hypothesis import given

from actuation.builders import (
    MIB,
    desired_change,
    observation,
    pod,
    some_resources,
    start_change,
    wait_reason,
    workload,
)
from actuation.test_properties import QUICK
from actuation.world import KEY, World, run
from trimtab.actuation.change_annotations import Phase, UpdateMethod
from trimtab.actuation.decide.observation import DesiredChange, Observation
from trimtab.actuation.decide.start import MEMORY_LIMITS_FIXED
from trimtab.actuation.decide.transitions import next_actions
from trimtab.actuation.executor import ChangeExecutor
from trimtab.actuation.resources import Sizes, fit_without_growth, keep_memory_limit
from trimtab.api.duration import Duration
from trimtab.api.optimizationpolicy import TemplateUpdate
from trimtab.kube.kinds.pod_requests import qos_class
from trimtab.kube.kinds.pods import ContainerTermination, Resources

OLD = {"web": Resources(1000, None, 512 * MIB, 1024 * MIB)}
LESS = {"web": Resources(400, None, 256 * MIB, 512 * MIB)}
GUARANTEED = {"web": Resources(1000, 1000, 512 * MIB, 512 * MIB)}
NEED = {"web": 100 * MIB}


def case(wanted: Sizes, *, has: Sizes = OLD, **terms: Any) -> Observation:
    restarts = terms.pop("restarts", False)
    pods = [pod(f"web-{n}", sizes=has, restarts_when_resized=restarts) for n in range(3)]
    on = workload(template=has, replicas=3)
    return observation(
        desired_change(wanted, needed_memory=NEED, memory_limits_fixed=True, **terms), pods=pods, on=on
    )


def test_memory_limit_that_cannot_be_lowered_stays_and_the_rest_changes() -> None:
    begins = start_change(case(LESS))
    assert begins.method is UpdateMethod.IN_PLACE
    assert begins.after == {"web": Resources(400, None, 256 * MIB, 1024 * MIB)}


def test_memory_of_a_guaranteed_pod_stays_to_keep_its_class() -> None:
    begins = start_change(case({"web": Resources(400, 400, 256 * MIB, 256 * MIB)}, has=GUARANTEED))
    assert begins.after == {"web": Resources(400, 400, 512 * MIB, 512 * MIB)}


def test_memory_limit_alone_that_cannot_change_gives_the_reason() -> None:
    only_limit = {"web": Resources(1000, None, 512 * MIB, 600 * MIB)}
    assert wait_reason(next_actions(case(only_limit))) == MEMORY_LIMITS_FIXED


def test_memory_limit_is_lowered_by_replacement_if_allowed() -> None:
    begins = start_change(case(LESS, allow_recreate=True))
    assert (begins.method, begins.after) == (UpdateMethod.ROLLOUT, LESS)
    never = start_change(case(LESS, allow_recreate=True, template=TemplateUpdate.NEVER))
    assert (never.method, never.after["web"].memory_limit) == (UpdateMethod.IN_PLACE, 1024 * MIB)
    restarted = start_change(case(LESS, allow_recreate=True, restarts=True))
    assert (restarted.method, restarted.after) == (UpdateMethod.IN_PLACE, LESS), (
        "a container that restarts for it can have less"
    )


def world(template: Sizes = OLD) -> World:
    found = World(template=template, replicas=3)
    found.keeps_memory_limits = True
    return found


def drive(found: World, wanted: DesiredChange, *, steps: int = 60, kill_at: Phase | None = None) -> None:
    actuator = ChangeExecutor(found, found.records, may_write=lambda: True)
    for _ in range(steps):
        run(actuator.reconcile(KEY, wanted, now=found.now))
        change = found.change_annotations.change
        found.pass_time(30)
        if change and change.phase is kill_at:
            for live in found.pods_by_name.values():
                live.exits["web"] = ContainerTermination("Error", 1, found.now)
            kill_at = None


@pytest.mark.parametrize("is_known", [True, False])
def test_memory_decrease_ends(*, is_known: bool) -> None:
    """Also where a version says nothing of it: then the server's refusal does, and it is reverted."""
    found = world()
    drive(found, desired_change(LESS, needed_memory=NEED, canary=QUICK, memory_limits_fixed=is_known))
    assert found.change_annotations.change is None
    assert bool(found.change_annotations.applied) is is_known
    given_to = Resources(400, None, 256 * MIB, 1024 * MIB) if is_known else OLD["web"]
    assert found.sizes == {(("web", given_to),)}
    if is_known:
        assert not any(reason == "Refused" for _, reason, _ in found.events)


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("before", [OLD, GUARANTEED])
def test_revert_of_a_memory_increase_ends(*, is_known: bool, before: Sizes) -> None:
    """The limit stays where it is, and so does what must be equal to it; the rest is as before."""
    found, now = world(before), before["web"]
    doubled = Resources(
        2000, now.cpu_limit and 2000, (now.memory_request or 0) * 2, (now.memory_limit or 0) * 2
    )
    terms: dict[str, Any] = {"canary": QUICK, "memory_limits_fixed": is_known}
    drive(found, desired_change({"web": doubled}, needed_memory=NEED, **terms), kill_at=Phase.VERIFYING)
    assert found.change_annotations.change is None
    assert found.change_annotations.reverted
    ((_, left),) = next(iter(found.sizes))
    assert (left.cpu_request, left.memory_limit) == (now.cpu_request, doubled.memory_limit)
    assert qos_class([left]) == qos_class([now])
    assert any(reason == "RevertIncomplete" for _, reason, _ in found.events)
    assert len(found.sizes) == 1


def test_new_pods_after_a_limited_revert_get_the_size_of_the_others() -> None:
    found = world()
    more = {"web": Resources(1000, None, 768 * MIB, 1536 * MIB)}
    terms: dict[str, Any] = {"canary": QUICK, "memory_limits_fixed": True}
    drive(found, desired_change(more, needed_memory=NEED, **terms), kill_at=Phase.VERIFYING)
    found.replicas += 1
    found.add_pod()
    drive(found, desired_change(more, needed_memory=NEED, min_interval=Duration(0), **terms), steps=3)
    assert found.sizes == {(("web", Resources(1000, None, 512 * MIB, 1536 * MIB)),)}


@given(some_resources(), some_resources())
def test_resize_without_capacity_keeps_class_and_requests_no_more(now: Resources, wanted: Resources) -> None:
    for given_to in (fit_without_growth(now, wanted), keep_memory_limit(now, wanted)):
        if now.memory_limit and wanted.memory_limit:
            assert (given_to.memory_limit or 0) >= now.memory_limit
        assert not given_to.memory_limit or (given_to.memory_request or 0) <= given_to.memory_limit
        assert not given_to.cpu_limit or (given_to.cpu_request or 0) <= given_to.cpu_limit
    fits = fit_without_growth(now, wanted)
    assert (fits.cpu_request or 0) <= (now.cpu_request or 0)
    assert (fits.memory_request or 0) <= (now.memory_request or 0)
    if qos_class([now]) == qos_class([wanted]):
        assert qos_class([fits]) == qos_class([now])


@pytest.mark.parametrize("urgent", [False, True])
@pytest.mark.parametrize("larger", ["web-0", "web-2"])
def test_memory_limit_of_a_larger_pod_stays_and_does_not_block_others(larger: str, *, urgent: bool) -> None:
    """As one of an earlier template: its resize was refused, and that reverted the change of all, again and again."""
    found = world(LESS)
    found.pods_by_name[larger].spec = found.pods_by_name[larger].applied = dict(OLD)
    more = {"web": Resources(600, None, 300 * MIB, 600 * MIB)}
    drive(
        found,
        desired_change(more, needed_memory=NEED, memory_limits_fixed=True, is_urgent=urgent, canary=QUICK),
    )
    # After an OOM kill, CPU is raised only after memory.
    given = {"web": Resources.from_pairs(LESS["web"].cpu, more["web"].memory)} if urgent else more
    assert "Refused" not in {reason for _, reason, _ in found.events}
    assert found.change_annotations.applied
    assert {name: live.applied for name, live in found.pods_by_name.items()} == {
        name: OLD if name == larger else given for name in found.pods_by_name
    }


@pytest.mark.parametrize(
    ("template", "applied", "expected"),
    [
        (OLD, LESS, {"web": Resources(400, None, 256 * MIB, 1024 * MIB)}),
        (
            GUARANTEED,
            {"web": Resources(400, 400, 256 * MIB, 256 * MIB)},
            {"web": Resources(400, 400, 512 * MIB, 512 * MIB)},
        ),
    ],
)
def test_new_pods_keep_a_memory_limit_that_cannot_be_lowered_and_get_the_rest(
    template: Sizes, applied: Sizes, expected: Sizes
) -> None:
    """The server refused the whole resize, for each new pod and every ten minutes."""
    found = world(template)
    found.apply_size_earlier(applied)
    found.replicas += 1
    found.add_pod()
    terms: dict[str, Any] = {"canary": QUICK, "memory_limits_fixed": True}
    drive(found, desired_change({}, needed_memory=NEED, **terms), steps=30)
    newest = max(found.pods_by_name.values(), key=lambda live: live.number)
    assert newest.applied == expected
    assert not any(reason == "Refused" for _, reason, _ in found.events)
    assert found.change_annotations.applied is not None
    assert found.change_annotations.applied.sizes == expected
    assert found.written.count("annotate") == 1
    assert found.written.count("resize") == 1


def test_new_pods_are_not_resized_for_a_rejected_limit_while_a_canary_is_observed() -> None:
    found = world()
    found.apply_size_earlier(LESS)
    less_cpu = {"web": Resources(200, None, 256 * MIB, 512 * MIB)}
    terms: dict[str, Any] = {"canary": QUICK, "memory_limits_fixed": True, "min_interval": Duration(0)}
    actuator = ChangeExecutor(found, found.records, may_write=lambda: True)
    for step in range(60):
        run(actuator.reconcile(KEY, desired_change(less_cpu, needed_memory=NEED, **terms), now=found.now))
        if step == 1:
            assert found.change_annotations.change
            found.replicas += 1
            found.add_pod()
        found.pass_time(30)
    assert not any(reason == "Refused" for _, reason, _ in found.events)
    assert found.change_annotations.change is None
    assert {live.applied["web"].cpu_request for live in found.pods_by_name.values()} == {200}
