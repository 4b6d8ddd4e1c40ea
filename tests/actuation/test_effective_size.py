"""The effective size of a container does not depend on how many pods still have the size of their template."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actuation.builders import (
    LARGE,
    MIB,
    NOW,
    SMALL,
    desired_change,
    observation,
    pod,
    some_resources,
    start_change,
    wait_reason,
    workload,
    writes,
)
from trimtab.actuation.actions import ChangeAction, ResizePod, WriteAnnotations
from trimtab.actuation.change_annotations import (
    AppliedSizes,
    ChangeAnnotations,
    OngoingChange,
    Phase,
    PodHealth,
    UpdateMethod,
)
from trimtab.actuation.decide.transitions import next_actions
from trimtab.actuation.effective_size import PodSync, effective_containers, effective_sizes, raise_cpu
from trimtab.actuation.resources import Sizes, merge_sizes
from trimtab.api.duration import Duration
from trimtab.api.optimizationpolicy import MaintenanceWindow, StartupBoost
from trimtab.kube.kinds.pods import Container, Pod, Resources
from trimtab.kube.kinds.workloads import Workload
from trimtab.kube.rest.resources import CRON_JOBS

TEMPLATE = {"web": SMALL}
APPLIED = {"web": LARGE}
OTHER = {"web": Resources(123, None, 99 * MIB, 256 * MIB)}
GROWN = {"web": Resources(800, None, 192 * MIB, 256 * MIB)}
BOOST = StartupBoost(factor=3, duration=Duration.parse("2m"))


def applied_sizes(
    sizes: Sizes = APPLIED, template: Sizes = TEMPLATE, *, at: int = NOW - 86_400
) -> AppliedSizes:
    return AppliedSizes(id="a", at=at, sizes=dict(sizes), template=dict(template))


def resized_workload(sizes: Sizes = APPLIED, template: Sizes = TEMPLATE, **facts: Any) -> Workload:
    """A workload that was resized in place, so that its template has its old size."""
    return workload(
        template=template,
        change_annotations=ChangeAnnotations(applied=applied_sizes(sizes, template)),
        **facts,
    )


def pods(*sizes: Sizes, created: int = NOW - 30) -> list[Pod]:
    return [pod(f"web-{n}", sizes=each, created=created) for n, each in enumerate(sizes)]


def change(phase: Phase, way: UpdateMethod = UpdateMethod.IN_PLACE, **facts: Any) -> OngoingChange:
    known: dict[str, Any] = {
        "id": "c",
        "started": NOW - 60,
        "method": way,
        "phase": phase,
        "since": NOW - 60,
        "before": APPLIED,
        "after": GROWN,
        "template": TEMPLATE,
        "health": PodHealth(pods=1),
    }
    return OngoingChange(**known | facts)


def resizes(actions: Sequence[ChangeAction]) -> dict[str, Sizes]:
    return {action.pod.name: action.sizes for action in actions if isinstance(action, ResizePod)}


NAMES = ("web", "log")


@given(
    template=st.fixed_dictionaries({name: some_resources() for name in NAMES}),
    wanted=st.fixed_dictionaries({name: some_resources() for name in NAMES}),
    injected=st.none() | some_resources(),
    limit=st.none() | st.integers(4000, 9000),
    new=st.lists(st.booleans(), min_size=1, max_size=12),
    more=st.integers(0, 12),
)
def test_effective_sizes_do_not_depend_on_how_many_pods_have_the_size_of_the_template(
    *,
    template: Sizes,
    wanted: Sizes,
    injected: Resources | None,
    limit: int | None,
    new: list[bool],
    more: int,
) -> None:
    """Also with an injected sidecar, a CPU limit that a LimitRange filled in, after a scale-out, and for any pods in any order."""
    beside = {"proxy": injected} if injected else {}
    template = {name: msgspec.structs.replace(each, cpu_limit=None) for name, each in template.items()}
    created = {
        name: msgspec.structs.replace(each, cpu_limit=limit) for name, each in template.items()
    } | beside
    has = {
        name: msgspec.structs.replace(
            each, cpu_limit=limit, memory_limit=template[name].memory_limit and each.memory_request
        )
        for name, each in wanted.items()
    } | beside
    on = resized_workload(has, template)
    some = pods(*(created if is_new else has for is_new in new), *[created] * more)
    assert effective_sizes(on, some) == has
    assert effective_sizes(on, some[::-1]) == has


def test_effective_sizes_without_pods_are_those_of_the_next_pods() -> None:
    assert effective_sizes(resized_workload(), []) == APPLIED
    assert effective_sizes(workload(template=TEMPLATE), []) == TEMPLATE
    leaving = msgspec.structs.replace(pod(sizes=TEMPLATE), deleting=True)
    failed = pod(sizes=TEMPLATE, phase="Failed")
    assert effective_sizes(resized_workload(), [leaving, failed]) == APPLIED


def test_effective_sizes_follow_the_template_only_for_an_edited_container() -> None:
    both = {"web": SMALL, "log": SMALL}
    on = resized_workload({"web": LARGE, "log": LARGE}, both)
    edited = {"web": SMALL, "log": Resources(300, None, 80 * MIB, 256 * MIB), "new": SMALL}
    containers = tuple(Container(name, "main", size) for name, size in edited.items())
    on = msgspec.structs.replace(on, containers=containers)
    assert effective_sizes(on, pods(edited, edited)) == edited | {"web": LARGE}
    assert resizes(next_actions(observation(pods=pods(edited), on=on))) == {"web-0": edited | {"web": LARGE}}


def test_effective_sizes_of_pods_resized_by_others_are_the_most_common() -> None:
    assert effective_sizes(resized_workload(), pods(OTHER, OTHER, APPLIED)) == OTHER
    assert effective_sizes(resized_workload(), pods(OTHER, APPLIED, TEMPLATE)) == APPLIED
    assert effective_sizes(workload(template=TEMPLATE), pods(OTHER, OTHER, TEMPLATE)) == OTHER
    for some in (pods(OTHER, APPLIED), pods(APPLIED, OTHER)):
        assert effective_sizes(resized_workload(), some) == APPLIED, (
            "of equals the one that was applied, not the first"
        )


def test_effective_sizes_without_pod_sync_are_the_most_common() -> None:
    off = PodSync(enabled=False)
    assert effective_sizes(resized_workload(), pods(TEMPLATE, TEMPLATE, APPLIED), off) == TEMPLATE
    assert effective_sizes(resized_workload(), pods(TEMPLATE, APPLIED, APPLIED), off) == APPLIED


def test_effective_sizes_leave_out_what_a_startup_boost_adds() -> None:
    boosted = raise_cpu(APPLIED, 3)
    assert (
        effective_sizes(resized_workload(), pods(boosted, boosted), PodSync(startup_boost=BOOST)) == APPLIED
    )
    assert effective_sizes(resized_workload(), pods(boosted, boosted)) == boosted


def test_effective_sizes_of_excluded_containers_are_their_own() -> None:
    both = {"web": SMALL, "proxy": SMALL}
    on = resized_workload({"web": LARGE, "proxy": LARGE}, both)
    elsewhere = {"web": SMALL, "proxy": OTHER["web"]}
    sync = PodSync(excluded=frozenset({"proxy"}))
    assert effective_sizes(on, pods(elsewhere), sync) == elsewhere | APPLIED
    case = observation(desired_change(excluded_containers=frozenset({"proxy"})), pods=pods(elsewhere), on=on)
    assert resizes(next_actions(case)) == {"web-0": elsewhere | APPLIED}


def test_effective_sizes_of_a_cron_job_are_those_of_its_template() -> None:
    on = workload(resource=CRON_JOBS, template=TEMPLATE)
    assert effective_sizes(on, pods(OTHER)) == TEMPLATE


def test_effective_containers_keep_an_injected_one_that_is_missing_in_the_newest_pod() -> None:
    injected = TEMPLATE | {"proxy": SMALL}
    some = [*pods(injected, injected, injected), pod("web-9", sizes=TEMPLATE, created=NOW)]
    assert [each.name for each in effective_containers(workload(template=TEMPLATE), some)] == ["web", "proxy"]
    few = [*pods(TEMPLATE, TEMPLATE), pod("web-9", sizes=injected, created=NOW)]
    assert [each.name for each in effective_containers(workload(template=TEMPLATE), few)] == ["web"]


@pytest.mark.parametrize(
    ("phase", "sizes"),
    [
        (Phase.CANARY, APPLIED),
        (Phase.PROMOTING, GROWN),
        (Phase.VERIFYING, GROWN),
        (Phase.REVERTING, APPLIED),
    ],
)
def test_effective_sizes_during_a_change_are_those_planned_for_all_pods(phase: Phase, sizes: Sizes) -> None:
    change_annotations = ChangeAnnotations(change=change(phase), applied=applied_sizes())
    for some in (pods(TEMPLATE), pods(GROWN, TEMPLATE, APPLIED), pods(GROWN, GROWN), []):
        assert (
            effective_sizes(workload(template=TEMPLATE, change_annotations=change_annotations), some) == sizes
        )
    edited = {"web": Resources(200, None, 100 * MIB, 256 * MIB)}
    assert (
        effective_sizes(workload(template=edited, change_annotations=change_annotations), pods(edited))
        == edited
    )


def test_effective_sizes_during_a_rollout_are_the_new_ones_once_the_template_has_them() -> None:
    change_annotations = ChangeAnnotations(
        change=change(Phase.PROMOTING, UpdateMethod.ROLLOUT, patches_template=True), applied=applied_sizes()
    )
    assert (
        effective_sizes(workload(template=TEMPLATE, change_annotations=change_annotations), pods(TEMPLATE))
        == APPLIED
    )
    ours = merge_sizes(TEMPLATE, GROWN)
    assert (
        effective_sizes(workload(template=ours, change_annotations=change_annotations), pods(TEMPLATE))
        == GROWN
    )


# What is done with it


def test_begin_starts_from_the_effective_size_where_pods_cannot_be_synced_yet() -> None:
    """A pod between two starts still has the size of its template; it is not where a change starts from."""
    crashing = pod("web-0", sizes=TEMPLATE, created=NOW - 30, waiting="CrashLoopBackOff", ready=True)
    found = start_change(observation(desired_change(GROWN), pods=[crashing], on=resized_workload()))
    assert (found.before, found.after, found.pod_overrides) == (APPLIED, GROWN, {crashing.uid: TEMPLATE})


@given(st.sampled_from([TEMPLATE, OTHER, GROWN]), st.lists(st.booleans(), min_size=1, max_size=6))
def test_begin_never_starts_a_change_from_an_outdated_recommendation(
    computed_from: Sizes, new: list[bool]
) -> None:
    some = pods(*(TEMPLATE if is_new else APPLIED for is_new in new))
    outdated = observation(
        desired_change(GROWN, computed_from=computed_from), pods=some, on=resized_workload(replicas=len(some))
    )
    assert not [action for action in next_actions(outdated) if isinstance(action, WriteAnnotations)]


def test_begin_waits_for_a_recommendation_that_takes_the_pods_of_now_into_account() -> None:
    outdated = next_actions(
        observation(desired_change(GROWN, computed_from=TEMPLATE), pods=pods(APPLIED), on=resized_workload())
    )
    assert "changed since the recommendation" in wait_reason(outdated)
    assert (
        start_change(
            observation(
                desired_change(GROWN, computed_from=APPLIED), pods=pods(APPLIED), on=resized_workload()
            )
        ).after
        == GROWN
    )


def test_begin_restarts_pods_with_the_template_size_if_allowed() -> None:
    """Pod sync restarts nothing, so that they would keep the size of their template for good."""
    old = pod("web-0", sizes=TEMPLATE, created=NOW - 600, restarts_when_resized=True)
    young = pod("web-0", sizes=TEMPLATE, created=NOW - 30, restarts_when_resized=True)
    kept = desired_change(APPLIED, allow_recreate=True)
    found = start_change(observation(kept, pods=[old], on=resized_workload()))
    assert (found.before, found.after, found.restarts) == (TEMPLATE, APPLIED, True)
    assert next_actions(observation(kept, pods=[young], on=resized_workload())) == []
    assert "resizing it restarts a container" in wait_reason(
        next_actions(observation(desired_change(APPLIED), pods=[old], on=resized_workload()))
    )


def test_next_actions_report_a_pod_that_cannot_be_synced() -> None:
    crashing = pod("web-0", sizes=TEMPLATE, created=NOW - 600, waiting="CrashLoopBackOff")
    assert wait_reason(
        next_actions(observation(desired_change(APPLIED), pods=[crashing], on=resized_workload()))
    ) == ("Pod web-0 still has the size of its template: it crashes before it can be resized")


@pytest.mark.parametrize("phase", [Phase.CANARY, Phase.REVERTING])
def test_next_actions_sync_new_pods_during_canary_observation_and_revert(
    phase: Phase,
) -> None:
    """They kept the size of the template meanwhile: hours, where a window closed."""
    change_annotations = ChangeAnnotations(
        change=change(phase, canaries=("web-0",), settled=NOW - 50), applied=applied_sizes()
    )
    stuck = GROWN if phase is Phase.CANARY else APPLIED
    some = [*pods(stuck, APPLIED, created=NOW - 900), pod("web-new", sizes=TEMPLATE, created=NOW - 10)]
    actions = next_actions(
        observation(
            desired_change(GROWN),
            pods=some,
            on=workload(template=TEMPLATE, change_annotations=change_annotations, replicas=3),
            now=NOW - 45,
        )
    )
    if phase is Phase.CANARY:
        assert resizes(actions) == {"web-new": APPLIED}
    else:  # it is done with, and what is left is for the next look
        assert not resizes(actions)
        waiting = [*pods(GROWN, created=NOW - 900), pod("web-new", sizes=TEMPLATE, created=NOW - 10)]
        on = workload(template=TEMPLATE, change_annotations=change_annotations, replicas=2)
        assert resizes(
            next_actions(observation(desired_change(GROWN, needed_memory={"web": 0}), pods=waiting, on=on))
        ) == {
            "web-0": APPLIED,
            "web-new": APPLIED,
        }


def test_next_actions_sync_new_pods_while_a_promotion_waits_for_its_window() -> None:
    closed = MaintenanceWindow(start="22:00", end="22:01")
    promoting = ChangeAnnotations(change=change(Phase.PROMOTING), applied=applied_sizes())
    some = [*pods(GROWN, APPLIED, created=NOW - 900), pod("web-new", sizes=TEMPLATE, created=NOW - 10)]
    on = workload(template=TEMPLATE, change_annotations=promoting, replicas=3)
    actions = next_actions(observation(desired_change(GROWN, windows=(closed,)), pods=some, on=on))
    assert resizes(actions) == {"web-new": GROWN}


# While it is held


def next_actions_when_held(
    some: Sequence[Pod], change_annotations: ChangeAnnotations, **terms: Any
) -> list[ChangeAction]:
    on = workload(template=TEMPLATE, change_annotations=change_annotations, replicas=len(some))
    return next_actions(
        observation(desired_change(GROWN, hold_reason="held by ann: the sale", **terms), pods=some, on=on)
    )


@given(st.lists(st.booleans(), min_size=1, max_size=8))
def test_next_actions_of_a_held_workload_sync_new_pods_and_start_no_change(
    new: list[bool],
) -> None:
    some = pods(*(TEMPLATE if is_new else APPLIED for is_new in new))
    actions = next_actions_when_held(some, ChangeAnnotations(applied=applied_sizes()))
    came = {each.name for each, is_new in zip(some, new, strict=True) if is_new}
    assert resizes(actions) == dict.fromkeys(came, APPLIED)
    if not came:
        assert wait_reason(actions) == "held by ann: the sale"
        assert (
            writes(next_actions_when_held(some, ChangeAnnotations(applied=applied_sizes()), is_urgent=True))
            == []
        )


def test_next_actions_of_a_held_workload_revert_canaries_and_finish_a_promotion() -> None:
    tried = ChangeAnnotations(change=change(Phase.CANARY, canaries=("web-0",)), applied=applied_sizes())
    (recorded,) = [
        action
        for action in next_actions_when_held(pods(GROWN, APPLIED), tried)
        if isinstance(action, WriteAnnotations)
    ]
    assert recorded.annotations.change
    assert (recorded.annotations.change.phase, recorded.annotations.change.not_at_fault) == (
        Phase.REVERTING,
        True,
    )
    assert recorded.annotations.change.reason == "held by ann: the sale"
    meant_for_all = ChangeAnnotations(change=change(Phase.PROMOTING), applied=applied_sizes())
    assert resizes(next_actions_when_held(pods(GROWN, APPLIED), meant_for_all)) == {"web-1": GROWN}
