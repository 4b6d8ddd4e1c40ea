"""Which size a container has in effect: one answer, however many pods still have the size of their template."""

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
    begun,
    pod,
    situation,
    some_resources,
    why,
    wish,
    workload,
    writes,
)
from trimtab.actuation.actions import ChangeAction, ResizePod, WriteAnnotations
from trimtab.actuation.change_annotations import (
    AppliedSizes,
    ChangeAnnotations,
    OngoingChange,
    Phase,
    UpdateMethod,
)
from trimtab.actuation.decide.health import PodHealth
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


def applied(sizes: Sizes = APPLIED, template: Sizes = TEMPLATE, *, at: int = NOW - 86_400) -> AppliedSizes:
    return AppliedSizes(id="a", at=at, sizes=dict(sizes), template=dict(template))


def resized(sizes: Sizes = APPLIED, template: Sizes = TEMPLATE, **facts: Any) -> Workload:
    """A workload that was resized in place, so that its template has its old size."""
    return workload(template=template, marks=ChangeAnnotations(applied=applied(sizes, template)), **facts)


def pods(*sizes: Sizes, created: int = NOW - 30) -> list[Pod]:
    return [pod(f"web-{n}", sizes=each, created=created) for n, each in enumerate(sizes)]


def change(phase: Phase, way: UpdateMethod = UpdateMethod.IN_PLACE, **facts: Any) -> OngoingChange:
    known: dict[str, Any] = {
        "id": "c",
        "started": NOW - 60,
        "way": way,
        "phase": phase,
        "since": NOW - 60,
        "before": APPLIED,
        "after": GROWN,
        "template": TEMPLATE,
        "health": PodHealth(pods=1),
    }
    return OngoingChange(**known | facts)


def resizes(deeds: Sequence[ChangeAction]) -> dict[str, Sizes]:
    return {deed.pod.name: deed.sizes for deed in deeds if isinstance(deed, ResizePod)}


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
    on = resized(has, template)
    some = pods(*(created if is_new else has for is_new in new), *[created] * more)
    assert effective_sizes(on, some) == has
    assert effective_sizes(on, some[::-1]) == has


def test_effective_sizes_of_a_workload_without_pods_are_those_that_its_next_pods_get() -> None:
    assert effective_sizes(resized(), []) == APPLIED
    assert effective_sizes(workload(template=TEMPLATE), []) == TEMPLATE
    leaving = msgspec.structs.replace(pod(sizes=TEMPLATE), deleting=True)
    failed = pod(sizes=TEMPLATE, phase="Failed")
    assert effective_sizes(resized(), [leaving, failed]) == APPLIED


def test_effective_sizes_follow_the_template_of_a_container_that_was_edited_and_no_other() -> None:
    both = {"web": SMALL, "log": SMALL}
    on = resized({"web": LARGE, "log": LARGE}, both)
    edited = {"web": SMALL, "log": Resources(300, None, 80 * MIB, 256 * MIB), "new": SMALL}
    containers = tuple(Container(name, "main", size) for name, size in edited.items())
    on = msgspec.structs.replace(on, containers=containers)
    assert effective_sizes(on, pods(edited, edited)) == edited | {"web": LARGE}
    assert resizes(next_actions(situation(pods=pods(edited), on=on))) == {"web-0": edited | {"web": LARGE}}


def test_effective_sizes_of_pods_that_somebody_else_resized_are_what_most_of_them_have() -> None:
    assert effective_sizes(resized(), pods(OTHER, OTHER, APPLIED)) == OTHER
    assert effective_sizes(resized(), pods(OTHER, APPLIED, TEMPLATE)) == APPLIED
    assert effective_sizes(workload(template=TEMPLATE), pods(OTHER, OTHER, TEMPLATE)) == OTHER
    for some in (pods(OTHER, APPLIED), pods(APPLIED, OTHER)):
        assert effective_sizes(resized(), some) == APPLIED, (
            "of equals the one that was applied, not the first"
        )


def test_effective_sizes_where_nobody_syncs_pods_are_what_most_of_them_have() -> None:
    off = PodSync(enabled=False)
    assert effective_sizes(resized(), pods(TEMPLATE, TEMPLATE, APPLIED), off) == TEMPLATE
    assert effective_sizes(resized(), pods(TEMPLATE, APPLIED, APPLIED), off) == APPLIED


def test_effective_sizes_leave_out_what_a_startup_boost_adds() -> None:
    boosted = raise_cpu(APPLIED, 3)
    assert effective_sizes(resized(), pods(boosted, boosted), PodSync(startup_boost=BOOST)) == APPLIED
    assert effective_sizes(resized(), pods(boosted, boosted)) == boosted


def test_effective_sizes_of_excluded_containers_are_their_own_and_keep_no_other_from_its_size() -> None:
    both = {"web": SMALL, "proxy": SMALL}
    on = resized({"web": LARGE, "proxy": LARGE}, both)
    elsewhere = {"web": SMALL, "proxy": OTHER["web"]}
    sync = PodSync(excluded=frozenset({"proxy"}))
    assert effective_sizes(on, pods(elsewhere), sync) == elsewhere | APPLIED
    case = situation(wish(excluded_containers=frozenset({"proxy"})), pods=pods(elsewhere), on=on)
    assert resizes(next_actions(case)) == {"web-0": elsewhere | APPLIED}


def test_effective_sizes_of_a_cron_job_are_those_of_its_template() -> None:
    on = workload(resource=CRON_JOBS, template=TEMPLATE)
    assert effective_sizes(on, pods(OTHER)) == TEMPLATE


def test_effective_containers_keep_an_injected_one_that_the_newest_pod_lacks() -> None:
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
def test_effective_sizes_during_a_change_are_those_that_all_pods_are_to_have(
    phase: Phase, sizes: Sizes
) -> None:
    marks = ChangeAnnotations(change=change(phase), applied=applied())
    for some in (pods(TEMPLATE), pods(GROWN, TEMPLATE, APPLIED), pods(GROWN, GROWN), []):
        assert effective_sizes(workload(template=TEMPLATE, marks=marks), some) == sizes
    edited = {"web": Resources(200, None, 100 * MIB, 256 * MIB)}
    assert effective_sizes(workload(template=edited, marks=marks), pods(edited)) == edited


def test_effective_sizes_during_a_rollout_are_the_new_ones_once_the_template_has_them() -> None:
    marks = ChangeAnnotations(
        change=change(Phase.PROMOTING, UpdateMethod.ROLLOUT, patches_template=True), applied=applied()
    )
    assert effective_sizes(workload(template=TEMPLATE, marks=marks), pods(TEMPLATE)) == APPLIED
    ours = merge_sizes(TEMPLATE, GROWN)
    assert effective_sizes(workload(template=ours, marks=marks), pods(TEMPLATE)) == GROWN


# What is done with it


def test_begin_starts_from_the_effective_size_where_pods_cannot_be_synced_yet() -> None:
    """A pod between two starts still has the size of its template; it is not where a change starts from."""
    falling = pod("web-0", sizes=TEMPLATE, created=NOW - 30, waiting="CrashLoopBackOff", ready=True)
    found = begun(situation(wish(GROWN), pods=[falling], on=resized()))
    assert (found.before, found.after, found.odd) == (APPLIED, GROWN, {falling.uid: TEMPLATE})


@given(st.sampled_from([TEMPLATE, OTHER, GROWN]), st.lists(st.booleans(), min_size=1, max_size=6))
def test_begin_never_starts_a_change_from_an_outdated_recommendation(
    computed_from: Sizes, new: list[bool]
) -> None:
    some = pods(*(TEMPLATE if is_new else APPLIED for is_new in new))
    outdated = situation(wish(GROWN, computed_from=computed_from), pods=some, on=resized(replicas=len(some)))
    assert not [deed for deed in next_actions(outdated) if isinstance(deed, WriteAnnotations)]


def test_begin_waits_for_a_recommendation_that_takes_the_pods_of_now_into_account() -> None:
    outdated = next_actions(situation(wish(GROWN, computed_from=TEMPLATE), pods=pods(APPLIED), on=resized()))
    assert "changed since the recommendation" in why(outdated)
    assert (
        begun(situation(wish(GROWN, computed_from=APPLIED), pods=pods(APPLIED), on=resized())).after == GROWN
    )


def test_begin_gives_pods_their_size_that_restart_to_be_resized_and_may() -> None:
    """Pod sync restarts nothing, so that they would keep the size of their template for good."""
    old = pod("web-0", sizes=TEMPLATE, created=NOW - 600, restarts_when_resized=True)
    young = pod("web-0", sizes=TEMPLATE, created=NOW - 30, restarts_when_resized=True)
    kept = wish(APPLIED, allow_recreate=True)
    found = begun(situation(kept, pods=[old], on=resized()))
    assert (found.before, found.after, found.restarts) == (TEMPLATE, APPLIED, True)
    assert next_actions(situation(kept, pods=[young], on=resized())) == []
    assert "resizing it restarts a container" in why(
        next_actions(situation(wish(APPLIED), pods=[old], on=resized()))
    )


def test_next_deeds_report_a_pod_that_cannot_be_brought_to_its_size() -> None:
    falling = pod("web-0", sizes=TEMPLATE, created=NOW - 600, waiting="CrashLoopBackOff")
    assert why(next_actions(situation(wish(APPLIED), pods=[falling], on=resized()))) == (
        "Pod web-0 still has the size of its template: it crashes before it can be resized"
    )


@pytest.mark.parametrize("phase", [Phase.CANARY, Phase.REVERTING])
def test_next_deeds_sync_pods_that_come_while_canaries_are_watched_or_a_change_is_reverted(
    phase: Phase,
) -> None:
    """They kept the size of the template meanwhile: hours, where a window closed."""
    marks = ChangeAnnotations(change=change(phase, canaries=("web-0",), settled=NOW - 50), applied=applied())
    stuck = GROWN if phase is Phase.CANARY else APPLIED
    some = [*pods(stuck, APPLIED, created=NOW - 900), pod("web-new", sizes=TEMPLATE, created=NOW - 10)]
    deeds = next_actions(
        situation(
            wish(GROWN), pods=some, on=workload(template=TEMPLATE, marks=marks, replicas=3), now=NOW - 45
        )
    )
    if phase is Phase.CANARY:
        assert resizes(deeds) == {"web-new": APPLIED}
    else:  # it is done with, and what is left is for the next look
        assert not resizes(deeds)
        waiting = [*pods(GROWN, created=NOW - 900), pod("web-new", sizes=TEMPLATE, created=NOW - 10)]
        on = workload(template=TEMPLATE, marks=marks, replicas=2)
        assert resizes(
            next_actions(situation(wish(GROWN, needed_memory={"web": 0}), pods=waiting, on=on))
        ) == {
            "web-0": APPLIED,
            "web-new": APPLIED,
        }


def test_next_deeds_sync_pods_that_come_while_a_promotion_waits_for_its_window() -> None:
    closed = MaintenanceWindow(start="22:00", end="22:01")
    promoting = ChangeAnnotations(change=change(Phase.PROMOTING), applied=applied())
    some = [*pods(GROWN, APPLIED, created=NOW - 900), pod("web-new", sizes=TEMPLATE, created=NOW - 10)]
    on = workload(template=TEMPLATE, marks=promoting, replicas=3)
    deeds = next_actions(situation(wish(GROWN, windows=(closed,)), pods=some, on=on))
    assert resizes(deeds) == {"web-new": GROWN}


# While it is held


def held(some: Sequence[Pod], marks: ChangeAnnotations, **terms: Any) -> list[ChangeAction]:
    on = workload(template=TEMPLATE, marks=marks, replicas=len(some))
    return next_actions(
        situation(wish(GROWN, hold_reason="held by ann: the sale", **terms), pods=some, on=on)
    )


@given(st.lists(st.booleans(), min_size=1, max_size=8))
def test_next_deeds_of_a_held_workload_bring_new_pods_to_its_size_and_start_no_change(
    new: list[bool],
) -> None:
    some = pods(*(TEMPLATE if is_new else APPLIED for is_new in new))
    deeds = held(some, ChangeAnnotations(applied=applied()))
    came = {each.name for each, is_new in zip(some, new, strict=True) if is_new}
    assert resizes(deeds) == dict.fromkeys(came, APPLIED)
    if not came:
        assert why(deeds) == "held by ann: the sale"
        assert writes(held(some, ChangeAnnotations(applied=applied()), is_urgent=True)) == []


def test_next_deeds_of_a_held_workload_take_back_canaries_and_finish_what_is_promoted() -> None:
    tried = ChangeAnnotations(change=change(Phase.CANARY, canaries=("web-0",)), applied=applied())
    (noted,) = [deed for deed in held(pods(GROWN, APPLIED), tried) if isinstance(deed, WriteAnnotations)]
    assert noted.annotations.change
    assert (noted.annotations.change.phase, noted.annotations.change.blameless) == (Phase.REVERTING, True)
    assert noted.annotations.change.reason == "held by ann: the sale"
    meant_for_all = ChangeAnnotations(change=change(Phase.PROMOTING), applied=applied())
    assert resizes(held(pods(GROWN, APPLIED), meant_for_all)) == {"web-1": GROWN}
