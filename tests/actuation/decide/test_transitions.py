"""The transitions of a change, step by step: started, canary, verified, promoted, reverted."""

from dataclasses import replace
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
    harm_signals,
    observation,
    pod,
    some_resources,
    start_change,
    wait_reason,
    warnings,
    workload,
    writes,
)
from trimtab.actuation.actions import (
    ChangeAction,
    EmitEvent,
    EvictPod,
    PatchTemplate,
    Priority,
    ResizePod,
    Skip,
    Wait,
    WriteAnnotations,
)
from trimtab.actuation.change_annotations import (
    CHANGE_ANNOTATION,
    AppliedSizes,
    ChangeAnnotations,
    OngoingChange,
    Phase,
    PodHealth,
    RevertRecord,
    UpdateMethod,
    decode_change_annotations,
    encode_change_annotations,
)
from trimtab.actuation.deadlines import DEADLINES
from trimtab.actuation.decide.conflicts import LIMITS_EXCEEDED
from trimtab.actuation.decide.health import (
    HarmSignals,
    ThrottlingSample,
    compare_health,
    health_since,
)
from trimtab.actuation.decide.observation import (
    DesiredChange,
    LocalObservations,
    Observation,
    Rejection,
    rejection_key,
)
from trimtab.actuation.decide.revert import compute_cooldown
from trimtab.actuation.decide.transitions import next_actions
from trimtab.actuation.resources import SizeLimits, Sizes
from trimtab.api.optimizationpolicy import (
    Canary,
    MaintenanceWindow,
    StartupBoost,
    TemplateUpdate,
)
from trimtab.kube.kinds.pods import ContainerTermination, Pod, PodResize, Resources
from trimtab.kube.rest.resources import DAEMON_SETS, JOBS

AFTER = {"web": LARGE}
RELIEVED = {"web": Resources.from_pairs(SMALL.cpu, LARGE.memory)}
HUGE = Resources(800, None, 256 * MIB, 256 * MIB)
FIVE = [pod(f"web-{n}", created=NOW - 1000 + n) for n in range(5)]
OBSERVATION = 600
PATIENCE = 1800


def change(phase: Phase = Phase.CANARY, **fields: Any) -> OngoingChange:
    """A change of five pods, `web-4` first."""
    return msgspec.structs.replace(start_change(observation(pods=FIVE)), phase=phase, **fields)


def written_annotations(actions: list[ChangeAction]) -> ChangeAnnotations:
    (recorded,) = [action for action in actions if isinstance(action, WriteAnnotations)]
    return recorded.annotations


def step(
    under_way: OngoingChange,
    pods: list[Pod],
    *,
    wanted: DesiredChange | None = None,
    now: int = NOW,
    **terms: Any,
) -> list[ChangeAction]:
    local = terms.pop("local", None)
    on = workload(change_annotations=ChangeAnnotations(change=under_way), **{"replicas": len(pods)} | terms)
    return next_actions(
        observation(
            wanted or desired_change(needed_memory={"web": 0}), pods=pods, on=on, now=now, local=local
        )
    )


def test_abandoned_revert_gives_a_pod_without_a_node_no_more_than_the_limits() -> None:
    """While a change is reverted, its size is not bounded: pods that had it are recognised by it."""
    vast = {"web": Resources(50, None, 32 * MIB, 4096 * MIB)}
    forged = change(
        Phase.REVERTING,
        before={"web": SMALL},
        after=vast,
        evicts_pods=True,
        abandoned_at=NOW,
        abandon_reason="no node",
    )
    found = step(forged, [pod("web-0", node="", created=NOW + 1)], wanted=limited())
    assert [each.sizes["web"].memory_limit for each in found if isinstance(each, ResizePod)] == [512 * MIB]


def five_pods(sizes: Sizes, *numbers: int, **facts: Any) -> list[Pod]:
    """Five pods, of which these have this size."""
    return [
        pod(f"web-{n}", created=NOW - 1000 + n, **({"sizes": sizes} | facts if n in numbers else {}))
        for n in range(5)
    ]


def reverting_change(actions: list[ChangeAction]) -> OngoingChange:
    recorded = written_annotations(actions).change
    assert recorded
    assert recorded.phase is Phase.REVERTING
    assert warnings(actions)[-1].endswith(f", because {recorded.reason}")
    return recorded


# Started, canary


def test_start_records_the_size_that_pods_get_within_the_organisations_limits() -> None:
    """A change to 200 MiB was recorded, and pods were resized to 128 MiB: its annotation is read within the limits."""
    size = Resources(100, None, 200 * MIB, 256 * MIB)
    limits = SizeLimits(memory=128 * MIB)
    on = workload(template={"web": SMALL})
    start = observation(
        replace(desired_change({"web": size}), size_limits=limits), pods=[pod(sizes={"web": SMALL})], on=on
    )
    noted = ChangeAnnotations(change=start_change(start))
    assert noted.within(limits, {"web": SMALL}) == noted
    assert noted.change
    assert noted.change.after["web"].memory_request == 128 * MIB


@pytest.mark.parametrize("ago", [3 * 3600, 23 * 3600, 25 * 3600])
def test_begin_restarts_pods_for_less_only_once_in_the_stabilization(ago: int) -> None:
    """Every move of a noisy load restarted them: 13 rollouts of one Deployment in 4 days."""
    applied = AppliedSizes(id="x", at=NOW - ago + 600, sizes=AFTER, template=AFTER, restarted=NOW - ago)
    on = workload(template=AFTER, change_annotations=ChangeAnnotations(applied=applied))
    terms: dict[str, Any] = {
        "allow_in_place_resize": False,
        "allow_recreate": True,
        "needed_memory": {"web": 0},
    }

    def actions(sizes: Resources, **more: Any) -> list[ChangeAction]:
        wanted = replace(desired_change({"web": sizes}, **terms | more), stabilization=86_400)
        return next_actions(observation(wanted, pods=[pod(sizes=AFTER)], on=on))

    less, mixed = actions(SMALL), actions(Resources(100, None, 200 * MIB, 256 * MIB))
    if ago < 86_400:
        assert "they restart for a smaller size from" in wait_reason(less)
        only_more = written_annotations(mixed).change
        assert only_more
        assert only_more.after == {"web": Resources(400, None, 200 * MIB, 256 * MIB)}
    else:
        assert written_annotations(less).change
    in_place = written_annotations(actions(SMALL, allow_in_place_resize=True)).change
    assert in_place
    assert in_place.method is UpdateMethod.IN_PLACE


def test_change_keeps_restarts_of_pods_through_in_place_changes() -> None:
    settled = {"settled": NOW - OBSERVATION, "since": NOW - 3 * OBSERVATION}
    done = five_pods(AFTER, 0, 1, 2, 3, 4)
    restarts = change(Phase.VERIFYING, restarts=True, **settled)
    applied = written_annotations(step(restarts, done)).applied
    assert applied
    assert applied.restarted == restarts.started
    on = workload(
        change_annotations=ChangeAnnotations(change=change(Phase.VERIFYING, **settled), applied=applied),
        replicas=5,
    )
    later = written_annotations(next_actions(observation(desired_change(), pods=done, on=on))).applied
    assert later
    assert later.restarted == restarts.started


def test_change_is_annotated_before_a_pod_is_touched() -> None:
    actions = next_actions(observation(pods=FIVE))
    assert [type(action) for action in writes(actions)] == [WriteAnnotations]
    begins = change()
    assert (begins.before, begins.after, begins.template) == ({"web": SMALL}, AFTER, {"web": SMALL})


def test_change_starts_with_the_youngest_ready_pod() -> None:
    assert change().canaries == ("web-4",)
    (resize,) = step(change(), FIVE)
    assert isinstance(resize, ResizePod)
    assert (resize.pod.name, resize.sizes, resize.priority) == ("web-4", AFTER, Priority.INCREASE)


def test_change_of_a_single_pod_has_it_as_canary() -> None:
    alone = start_change(observation())
    assert (alone.phase, alone.canaries) == (Phase.PROMOTING, ())


def test_relief_after_an_oom_kill_raises_all_pods_at_once() -> None:
    applied = AppliedSizes(id="x", at=NOW - 1, sizes={"web": SMALL}, template={"web": SMALL})
    unready = [pod(f"web-{n}", ready=n > 0) for n in range(5)]
    on = workload(change_annotations=ChangeAnnotations(applied=applied), replicas=5)
    assert (
        start_change(observation(desired_change(is_urgent=True), pods=unready, on=on)).phase
        is Phase.PROMOTING
    )


def test_relief_after_an_oom_kill_lowers_nothing() -> None:
    asked = Resources(1, 1, 512 * MIB, 512 * MIB)
    (given,) = start_change(observation(desired_change({"web": asked}, is_urgent=True))).after.values()
    assert (given.memory_request, given.memory_limit) == (512 * MIB, SMALL.memory_limit and 512 * MIB)
    assert (given.cpu_request, given.cpu_limit) == (SMALL.cpu_request, SMALL.cpu_limit)


@pytest.mark.parametrize("may_recreate", [False, True])
def test_relief_after_an_oom_kill_keeps_a_limit_above_its_request_and_adds_none(
    *, may_recreate: bool
) -> None:
    """A policy that removes the limit of memory and sets one of CPU: both come later, with the care of any change."""
    wanted = desired_change(
        {"web": Resources(400, 800, 512 * MIB, None)}, is_urgent=True, allow_recreate=may_recreate
    )
    begins = start_change(observation(wanted))
    assert begins.method is UpdateMethod.IN_PLACE
    assert begins.after == {"web": Resources(SMALL.cpu_request, None, 512 * MIB, 512 * MIB)}


def test_relief_after_an_oom_kill_raises_no_cpu() -> None:
    """With the CPU that is wanted besides, a replaced pod may fit on no node: relief is not reverted for that."""
    for replaces in (False, True):
        wanted = desired_change(is_urgent=True, allow_recreate=True, allow_in_place_resize=not replaces)
        begins = start_change(observation(wanted))
        assert (begins.after, begins.relief) == (RELIEVED, True)
        assert begins.method is (UpdateMethod.ROLLOUT if replaces else UpdateMethod.IN_PLACE)


def test_change_never_lowers_memory_of_an_oom_killed_workload() -> None:
    """Its next start may be minutes away, and the last kill may be seen only now."""
    killed = {"web": ContainerTermination("OOMKilled", 137, NOW - 2)}
    alone = start_change(
        observation(desired_change(is_urgent=True), pods=[pod(created=NOW - 5, ready=False, exits=killed)])
    )
    assert (alone.health.killed, alone.health.unready) == (1, 1)
    again = [pod(sizes=RELIEVED, ready=False, exits={"web": ContainerTermination("OOMKilled", 137, NOW + 1)})]
    assert written_annotations(step(alone, again, now=NOW + 2)).change.phase is Phase.VERIFYING  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "crashing",
    [
        pod(ready=False, waiting="CrashLoopBackOff"),
        pod(ready=False, ended=True, exits={"web": ContainerTermination("OOMKilled", 137, NOW - 2)}),
    ],
    ids=["reported", "not reported yet"],
)
def test_change_resizes_a_crashing_pod_when_it_runs(crashing: Pod) -> None:
    raised = start_change(observation(desired_change(is_urgent=True), pods=[crashing]))
    assert "is not in effect yet on pod web-0" in wait_reason(step(raised, [crashing]))
    (resize,) = step(raised, [pod(ready=False)])
    assert isinstance(resize, ResizePod)


def test_change_replaces_a_pod_that_never_runs_long_enough_if_allowed() -> None:
    crashing = pod(ready=False, waiting="CrashLoopBackOff")
    wanted = desired_change(is_urgent=True, allow_recreate=True)
    raised = start_change(observation(wanted, pods=[crashing]))
    assert raised.method is UpdateMethod.IN_PLACE
    assert "is not in effect yet" in wait_reason(
        step(raised, [crashing], wanted=wanted, now=NOW + DEADLINES.crash_loop - 1)
    )
    rolled = written_annotations(
        step(raised, [crashing], wanted=wanted, now=NOW + DEADLINES.crash_loop)
    ).change
    assert rolled
    assert (rolled.method, rolled.patches_template, rolled.before) == (
        UpdateMethod.ROLLOUT,
        True,
        raised.before,
    )
    (patch,) = step(rolled, [crashing], wanted=wanted, now=NOW + DEADLINES.crash_loop + 1)
    assert patch == PatchTemplate(RELIEVED, take_ownership=False)
    forbidden = desired_change(is_urgent=True)
    assert "is not in effect yet" in wait_reason(
        step(raised, [crashing], wanted=forbidden, now=NOW + DEADLINES.crash_loop)
    )


def test_change_waits_only_for_a_while_for_a_pod_that_crashes_by_itself() -> None:
    crashing = pod("web-0", ready=False, waiting="CrashLoopBackOff")
    pods = [crashing, *(pod(f"web-{n}", sizes=AFTER) for n in range(1, 20))]
    promoting = change(Phase.PROMOTING)
    given_up = NOW + OBSERVATION + PATIENCE
    local = LocalObservations(observed_since=NOW)
    waits = step(promoting, pods, now=given_up - 1, local=local)
    assert "on pod web-0, which crashes before it can be resized" in wait_reason(waits)
    verifying = written_annotations(step(promoting, pods, now=given_up, local=local)).change
    assert verifying
    assert verifying.phase is Phase.VERIFYING
    done = written_annotations(step(verifying, pods, now=given_up + OBSERVATION + PATIENCE, local=local))
    assert done.applied


@pytest.mark.parametrize("phase", [Phase.CANARY, Phase.PROMOTING])
def test_change_starts_over_with_the_current_target_if_all_pods_crash_for_long(phase: Phase) -> None:
    crashing = pod(ready=False, waiting="CrashLoopBackOff")
    begins = start_change(observation(desired_change(is_urgent=True), pods=[crashing]))
    under_way = msgspec.structs.replace(begins, phase=phase, canaries=("web-0",))
    reverting = reverting_change(step(under_way, [crashing], now=NOW + OBSERVATION + PATIENCE))
    assert reverting.not_at_fault


def test_change_evicts_crashing_pods_of_an_on_delete_workload() -> None:
    crashing, waiting = pod(ready=False, waiting="CrashLoopBackOff"), pod(ready=False)
    wanted = desired_change(is_urgent=True, allow_recreate=True, allow_in_place_resize=False)
    by_hand = workload(update="OnDelete")
    raised = start_change(observation(wanted, pods=[crashing], on=by_hand))
    assert raised.method is UpdateMethod.RECREATE

    def actions(found: Pod) -> list[ChangeAction]:
        return step(raised, [found], wanted=wanted, template=RELIEVED, update="OnDelete")

    assert actions(crashing) == [EvictPod(crashing, Priority.INCREASE)]
    assert not any(isinstance(action, EvictPod) for action in actions(waiting))


@pytest.mark.parametrize(
    ("pods", "unready", "begins"), [(1, 1, False), (9, 1, False), (20, 2, True), (20, 3, False)]
)
def test_change_tolerates_a_few_unready_pods_of_many(*, pods: int, unready: int, begins: bool) -> None:
    some = [pod(f"web-{n}", ready=n >= unready) for n in range(pods)]
    assert bool(writes(next_actions(observation(pods=some)))) == begins


def test_change_records_each_pod_of_another_size() -> None:
    other = {"web": Resources(123, None, 99 * MIB, 256 * MIB)}
    assert start_change(observation(pods=five_pods(other, 2))).pod_overrides == {"uid-web-2": other}


def test_change_does_not_start_on_pods_of_too_many_sizes() -> None:
    crowd = [pod(f"web-{n}", sizes={"web": Resources(100 + n, None, MIB, 256 * MIB)}) for n in range(300)]
    assert "too many different sizes" in wait_reason(next_actions(observation(pods=crowd)))


@pytest.mark.parametrize(
    "text",
    ["?", "{}", '{"version": 1}', '{"version": 2, "uid": "uid-web"}', '{"version": 1, "uid": "uid-web"}'],
)
def test_next_actions_are_empty_while_an_annotation_is_unreadable(text: str) -> None:
    reason = wait_reason(
        next_actions(observation(pods=FIVE, on=workload(annotations={CHANGE_ANNOTATION: text})))
    )
    assert "remove the annotation trimtab.io/change" in reason


@pytest.mark.parametrize("version", [1, 2])
def test_next_actions_ignore_annotations_of_another_object(version: int) -> None:
    """A restore by Velero gives a workload a new uid and its old annotations."""
    undone = ChangeAnnotations(change=change(), applied=applied_to({"web": SMALL}).applied)
    restored = {
        key: text.replace('"version":1', f'"version":{version}')
        for key, text in encode_change_annotations(undone, uid="uid-before").items()
    }
    found = start_change(observation(pods=FIVE, on=workload(annotations=restored, replicas=5)))
    assert (found.before, found.after) == ({"web": SMALL}, AFTER)


def test_change_does_not_start_while_a_guardrail_is_broken_or_unknown() -> None:
    for holds in (False, None):
        wanted = desired_change(harm_signals=harm_signals(guardrails={"latency": holds}))
        assert "guardrail latency" in wait_reason(next_actions(observation(wanted)))


def test_change_does_not_start_without_usage_unless_it_is_relief() -> None:
    away = desired_change(usage_error="prometheus: refused")
    assert (
        wait_reason(next_actions(observation(away)))
        == "usage cannot be read, so a change could not be verified: prometheus: refused"
    )
    assert (
        start_change(observation(desired_change(usage_error="prometheus: refused", is_urgent=True))).after
        == RELIEVED
    )
    assert [type(action) for action in step(change(), FIVE, wanted=away)] == [ResizePod]


def test_change_keeps_a_limit_that_cannot_be_removed_in_place() -> None:
    limited = {"web": Resources(100, 200, 64 * MIB, 256 * MIB)}
    unlimited = {"web": Resources(300, None, 64 * MIB, 256 * MIB)}
    case = observation(desired_change(unlimited), pods=[pod(sizes=limited)], on=workload(template=limited))
    assert start_change(case).after == {"web": Resources(300, 300, 64 * MIB, 256 * MIB)}
    recreated = observation(desired_change(unlimited, allow_recreate=True), pods=[pod(sizes=limited)])
    assert (start_change(recreated).method, start_change(recreated).after) == (
        UpdateMethod.ROLLOUT,
        unlimited,
    )
    only = {"web": Resources(100, None, 64 * MIB, 256 * MIB)}
    assert "allowRecreate" in wait_reason(
        next_actions(observation(desired_change(only), pods=[pod(sizes=limited)]))
    )


def test_container_that_restarts_for_a_size_keeps_it_and_the_others_change() -> None:
    """Extreme seed 6: one such container kept all others from their sizes for ever."""
    old = {"web": Resources(400, None, 512 * MIB, 512 * MIB), "log": Resources(50, None, 64 * MIB, 64 * MIB)}
    new = {"web": Resources(100, None, 256 * MIB, 256 * MIB), "log": Resources(30, None, 32 * MIB, 32 * MIB)}
    one = pod(sizes=old)
    log = msgspec.structs.replace(one.containers[1], restart_on_memory_resize=True)
    one = msgspec.structs.replace(one, containers=(one.containers[0], log))
    plenty = dict.fromkeys(old, MIB)

    def case(wanted: Sizes, **terms: Any) -> Observation:
        desired = desired_change(wanted, needed_memory=plenty, **terms)
        return observation(desired, pods=[one], on=workload(template=old))

    begins = start_change(case(new))
    assert (begins.method, begins.restarts) == (UpdateMethod.IN_PLACE, False)
    assert begins.after == {"web": new["web"], "log": Resources(30, None, 64 * MIB, 64 * MIB)}
    assert start_change(case(new, allow_recreate=True)).after == new
    only_log = next_actions(case({**old, "log": Resources(50, None, 32 * MIB, 32 * MIB)}))
    assert "resizing container log restarts it (resizePolicy)" in wait_reason(only_log)
    assert warnings(only_log) == [wait_reason(only_log)]


# Observed


def test_next_actions_name_the_container_whose_requests_cannot_be_added_in_place() -> None:
    bare = {"web": Resources(None, None, 256 * MIB, 256 * MIB)}
    reason = wait_reason(
        next_actions(
            observation(
                desired_change({"web": Resources(400, None, 256 * MIB, 256 * MIB)}), pods=[pod(sizes=bare)]
            )
        )
    )
    assert "(containers: web)" in reason
    assert reason.endswith("in the workload's template, or set allowRecreate: true")


def test_canary_observation_starts_when_sizes_are_in_effect() -> None:
    asked = five_pods(AFTER, 4, applied={"web": SMALL})
    assert "not in effect yet" in wait_reason(step(change(), asked))
    settled = written_annotations(step(change(), five_pods(AFTER, 4))).change
    assert settled
    assert (settled.phase, settled.settled) == (Phase.CANARY, NOW)


def test_canary_is_promoted_after_a_good_observation() -> None:
    watched = change(settled=NOW)
    assert step(watched, five_pods(AFTER, 4), now=NOW + 1) == [
        Wait(
            NOW + 1 + DEADLINES.recheck,
            "observing pods with the new size for 10m0s (updateStrategy.canary.observation)",
        )
    ]
    promoted = written_annotations(step(watched, five_pods(AFTER, 4), now=NOW + OBSERVATION)).change
    assert promoted
    assert promoted.phase is Phase.PROMOTING
    actions = step(promoted, five_pods(AFTER, 4), now=NOW + OBSERVATION)
    assert [action.pod.name for action in actions if isinstance(action, ResizePod)] == [
        "web-3",
        "web-2",
        "web-1",
        "web-0",
    ]


KILLED = {"web": ContainerTermination("OOMKilled", 137, NOW + 5)}
FELL = {"web": ContainerTermination("Error", 1, NOW + 5)}


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (
            {"exits": KILLED},
            "1 of 1 pods were killed for lack of memory after the change, 0 of 5 in the day before it",
        ),
        ({"exits": FELL}, "1 of 1 pods restarted after the change, 0 of 5 in the day before it"),
    ],
)
def test_canary_is_reverted_at_once_for_harm(facts: Any, reason: str) -> None:
    reverting = reverting_change(step(change(), five_pods(AFTER, 4, **facts), now=NOW + 10))
    assert reverting.reason == reason
    assert not reverting.not_at_fault


def test_canary_that_is_unready_for_a_minute_is_reverted() -> None:
    unready, seen = five_pods(AFTER, 4, ready=False), LocalObservations(unready_since={"uid-web-4": NOW})
    waits = step(change(settled=NOW), unready, now=NOW + DEADLINES.unready - 1, local=seen)
    assert "observing" in wait_reason(waits), "a probe may fail once"
    reverting = reverting_change(step(change(settled=NOW), unready, now=NOW + DEADLINES.unready, local=seen))
    assert reverting.reason == "1 of 1 pods are not ready, 0 of 5 before the change"


def test_canary_is_not_blamed_for_restarts_before_the_change() -> None:
    before = {"web": ContainerTermination("Error", 1, NOW - 5)}
    assert "yet" not in wait_reason(
        step(change(settled=NOW), five_pods(AFTER, 4, exits=before), now=NOW + 10)
    )


def test_canary_restart_by_the_resize_is_no_harm() -> None:
    wanted = desired_change(allow_recreate=True)
    restarting = [pod(f"web-{n}", created=NOW - 1000, restarts_when_resized=True) for n in range(5)]
    begins = start_change(observation(wanted, pods=restarting))
    assert begins.restarts
    canary = five_pods(AFTER, 4, exits=FELL)
    recorded = written_annotations(step(begins, canary, wanted=wanted, now=NOW + 6)).change
    assert recorded
    assert recorded.settled == NOW + 6
    quick = five_pods(AFTER, 4, exits={"web": ContainerTermination("Error", 137, NOW + 6)})
    for fared in (canary, quick):
        assert "observing" in wait_reason(step(recorded, fared, wanted=wanted, now=NOW + 9))
    again = five_pods(AFTER, 4, exits={"web": ContainerTermination("Error", 1, NOW + 8)})
    assert "restarted" in reverting_change(step(recorded, again, wanted=wanted, now=NOW + 9)).reason


def test_canary_is_reverted_for_throttling_or_a_broken_guardrail() -> None:
    before = PodHealth(pods=5, throttled=0.1)
    for share, guardrails, word in ((0.2, {}, "throttled in 20%"), (0.1, {"latency": False}, "latency")):
        known = HarmSignals(guardrails=guardrails)
        assert word in compare_health(before, PodHealth(pods=1, throttled=share), known).worse
    assert compare_health(before, PodHealth(pods=1, throttled=0.14), HarmSignals()).worse == ""


def test_canary_counts_throttling_of_changed_pods_since_their_change() -> None:
    others = {f"web-{n}": [ThrottlingSample(NOW + 20, 0.9)] for n in range(4)}
    of_canary = [
        ThrottlingSample(NOW - 60, 0.9),
        ThrottlingSample(NOW + 20, 0.1),
        ThrottlingSample(NOW + 40, 0.3),
    ]
    known = harm_signals(throttled={**others, "web-4": of_canary})
    canary = [pod("web-4")]

    def throttled_share(until: int) -> float | None:
        return health_since(canary, since=NOW, now=until, window=60, signals=known, known={}).throttled

    assert throttled_share(NOW + 60) == pytest.approx(0.2)
    assert throttled_share(NOW + 10) is None


def test_canary_without_evidence_waits_and_is_reverted() -> None:
    watched = change(settled=NOW)
    unknown = desired_change(harm_signals=harm_signals(guardrails={"latency": None}))
    over = NOW + OBSERVATION
    assert (
        wait_reason(step(watched, five_pods(AFTER, 4), wanted=unknown, now=over))
        == "guardrail latency cannot be evaluated; check its query"
    )
    given_up = step(watched, five_pods(AFTER, 4), wanted=unknown, now=over + PATIENCE)
    assert "within canary.evidenceTimeout" in reverting_change(given_up).reason


def test_canary_does_not_wait_for_throttling_that_was_never_known() -> None:
    assert compare_health(PodHealth(pods=5), PodHealth(pods=1), HarmSignals()).unknown == ""
    assert compare_health(PodHealth(pods=5, throttled=0.1), PodHealth(pods=1), HarmSignals()).unknown


def test_canary_without_a_cpu_limit_is_known_not_to_be_throttled() -> None:
    """Otherwise every change that removes a limit to avoid throttling would be reverted."""
    limited, unlimited = ({"web": Resources(100, limit, 64 * MIB, 256 * MIB)} for limit in (200, None))
    signals = harm_signals(throttled={"web-0": [ThrottlingSample(NOW - 60, 0.4)]})
    wanted = desired_change(unlimited, allow_recreate=True, harm_signals=signals)
    begins = start_change(observation(wanted, pods=[pod(sizes=limited)], on=workload(template=limited)))
    assert begins.health.throttled == pytest.approx(0.4)
    watched = msgspec.structs.replace(begins, phase=Phase.VERIFYING, settled=NOW)
    over = step(
        watched, [pod(sizes=unlimited, created=NOW)], template=unlimited, wanted=wanted, now=NOW + OBSERVATION
    )
    assert written_annotations(over).applied, over


@pytest.mark.parametrize(
    ("size", "blamed"),
    [
        (Resources(100, 200, 128 * MIB, 256 * MIB), False),  # memory only
        (Resources(150, 400, 64 * MIB, 256 * MIB), False),  # more CPU
        (Resources(100, 150, 64 * MIB, 256 * MIB), True),
        (Resources(50, 200, 64 * MIB, 256 * MIB), True),
    ],
)
def test_change_that_lowers_no_cpu_is_not_reverted_for_throttling(size: Resources, *, blamed: bool) -> None:
    """The load rose meanwhile: changes of memory alone were reverted, and tried again, every hour."""
    before, after = {"web": Resources(100, 200, 64 * MIB, 256 * MIB)}, {"web": size}

    def known(at: int, share: float) -> Any:
        return desired_change(
            after,
            needed_memory={"web": 0},
            harm_signals=harm_signals(throttled={"web-0": [ThrottlingSample(at, share)]}),
        )

    begins = start_change(
        observation(known(NOW - 60, 0.35), pods=[pod(sizes=before)], on=workload(template=before))
    )
    watched = msgspec.structs.replace(begins, phase=Phase.VERIFYING, settled=NOW)
    over = step(
        watched,
        [pod(sizes=after)],
        template=before,
        wanted=known(NOW + 60, 0.43),
        now=NOW + OBSERVATION,
    )
    if blamed:
        assert "throttled in 43%" in reverting_change(over).reason
    else:
        assert written_annotations(over).applied, over


@pytest.mark.parametrize("update", ["RollingUpdate", "OnDelete"])
def test_health_reports_pods_of_the_change_that_do_not_stay_ready(update: str) -> None:
    """They are younger than the change; and only while they start is that no harm."""
    wanted = desired_change(allow_recreate=True, can_resize_in_place=False, canary=Canary(percent=100))
    begins = start_change(observation(wanted, pods=FIVE, on=workload(update=update, replicas=5)))
    assert begins.method is (UpdateMethod.ROLLOUT if update == "RollingUpdate" else UpdateMethod.RECREATE)

    def pods(*unready: int, created: int = NOW + 10) -> list[Pod]:
        return [pod(f"web-{n}", sizes=AFTER, created=created, ready=n not in unready) for n in range(5)]

    terms: dict[str, Any] = {"wanted": wanted, "template": AFTER, "update": update}
    assert "not in effect yet" in wait_reason(step(begins, pods(4), now=NOW + 20, **terms)), "it starts"
    watched = written_annotations(step(begins, pods(), now=NOW + 30, **terms)).change
    assert watched
    assert (watched.phase, watched.settled) == (Phase.VERIFYING, NOW + 30)
    assert "observing" in wait_reason(step(watched, pods(), now=NOW + 40, **terms))
    later = NOW + 40 + DEADLINES.unready
    seen = LocalObservations(unready_since={"uid-web-1": NOW + 40, "uid-web-3": NOW + 40})
    reverting = reverting_change(step(watched, pods(1, 3), now=later, local=seen, **terms))
    assert reverting.reason == "2 of 5 pods are not ready, 0 of 5 before the change"
    newer = step(watched, pods(1, 3, created=NOW + 35), now=later, local=seen, **terms)
    assert wait_reason(newer), "those have yet to start: it is scaled out, or nodes were drained"


def test_verification_waits_for_later_unready_pods_as_long_as_for_evidence() -> None:
    wanted = desired_change(allow_recreate=True, can_resize_in_place=False)
    later = [pod("web-0", sizes=AFTER), pod("web-1", sizes=AFTER, created=NOW + 60, ready=False)]
    terms: dict[str, Any] = {"wanted": wanted, "template": AFTER}
    watched = change(Phase.VERIFYING, method=UpdateMethod.ROLLOUT, patches_template=True, settled=NOW)
    patience = NOW + 60 + OBSERVATION + PATIENCE
    assert "not in effect yet" in wait_reason(step(watched, later, now=patience - 1, **terms))
    assert "after the deadline" in reverting_change(step(watched, later, now=patience, **terms)).reason
    relief = msgspec.structs.replace(watched, relief=True)
    assert written_annotations(step(relief, later, now=patience, **terms)).applied, "the others need it"
    crashes = pod("web-1", created=NOW + 60, ready=False, waiting="CrashLoopBackOff")
    in_place = change(Phase.VERIFYING, settled=NOW)
    assert "on pod web-1" in wait_reason(step(in_place, [later[0], crashes], now=patience - 1))
    assert written_annotations(step(in_place, [later[0], crashes], now=patience)).applied, (
        "it is resized once it runs"
    )


def test_canary_waits_for_evidence_since_a_policy_asks_for_it() -> None:
    watched, late = change(Phase.VERIFYING, settled=NOW), NOW + 10 * (OBSERVATION + PATIENCE)
    terms: dict[str, Any] = {
        "wanted": desired_change(harm_signals=harm_signals(guardrails={"latency": None})),
        "now": late,
    }
    pods = five_pods(AFTER, *range(5))
    assert "latency" in wait_reason(
        step(watched, pods, local=LocalObservations(observed_since=late), **terms)
    )
    assert "within canary.evidenceTimeout" in reverting_change(step(watched, pods, **terms)).reason


def test_verification_waits_for_new_pods_after_a_long_pause_of_the_operator() -> None:
    """An operator that was away comes back while nodes are drained, and with many pods not ready yet."""
    watched = change(Phase.VERIFYING, method=UpdateMethod.ROLLOUT, patches_template=True, settled=NOW)
    wanted, now = (
        desired_change(allow_recreate=True, can_resize_in_place=False),
        NOW + OBSERVATION + PATIENCE + 3600,
    )
    drained = [pod("web-0", sizes=AFTER), pod("web-1", sizes=AFTER, created=now - 30, ready=False)]
    assert "not in effect yet" in wait_reason(step(watched, drained, now=now, wanted=wanted, template=AFTER))


def test_verification_ends_although_new_pods_come_all_the_time() -> None:
    """As where an autoscaler adds one every minute: one has always just come, and is not ready yet."""
    watched = change(Phase.VERIFYING, method=UpdateMethod.ROLLOUT, patches_template=True, settled=NOW)
    wanted, late = (
        desired_change(allow_recreate=True, can_resize_in_place=False),
        NOW + 86_400 + OBSERVATION + PATIENCE,
    )
    terms: dict[str, Any] = {
        "wanted": wanted,
        "template": AFTER,
        "local": LocalObservations(observed_since=NOW),
    }
    for now, waits in ((late - 1, True), (late, False)):
        busy = [pod("web-0", sizes=AFTER), pod("web-1", sizes=AFTER, created=now - 30, ready=False)]
        assert (writes(step(watched, busy, now=now, **terms)) == []) is waits


def one_by_one(replaced: int, *, ready: bool = True, created: int = NOW) -> list[Pod]:
    """Return five pods during their eviction: so many are recreated, the last of them at this time."""
    recreated = [pod(f"new-{n}", sizes=AFTER, created=NOW) for n in range(replaced - 1)]
    last = [pod("new", sizes=AFTER, created=created, ready=ready)]
    return [*FIVE[replaced:], *recreated, *last]


def test_replacement_continues_while_one_pod_is_replaced_in_an_hour() -> None:
    wanted = desired_change(allow_recreate=True, can_resize_in_place=False)
    evicting = change(Phase.PROMOTING, method=UpdateMethod.RECREATE, patches_template=True)
    terms: dict[str, Any] = {"wanted": wanted, "template": AFTER, "update": "OnDelete"}
    came = NOW + 4 * DEADLINES.progress
    going_on = step(evicting, one_by_one(3, created=came), now=came + DEADLINES.progress, **terms)
    assert [type(action) for action in going_on] == [EvictPod]
    broken = one_by_one(3, created=came, ready=False)
    assert wait_reason(step(evicting, broken, now=NOW + DEADLINES.progress, **terms))
    late = step(evicting, broken, now=NOW + DEADLINES.progress + 1, **terms)
    assert (
        reverting_change(late).reason
        == "the controller did not replace the pods in time; check its rollout and events"
    )


def test_replacement_evicts_once_a_pod_made_before_the_template_was_seen() -> None:
    evicting = change(Phase.PROMOTING, method=UpdateMethod.RECREATE, patches_template=True)
    wanted = desired_change(allow_recreate=True, can_resize_in_place=False)
    terms: dict[str, Any] = {"wanted": wanted, "template": AFTER, "update": "OnDelete"}
    unseen = step(evicting, FIVE, **terms, is_spec_observed=False)
    assert "has not observed the changed template yet" in wait_reason(unseen)
    recreated = [pod(f"new-{n}", sizes=AFTER, created=NOW + 30 + n) for n in range(4)]
    scaled_out = pod("old", created=NOW + 1)
    going_on = written_annotations(step(evicting, [*recreated, scaled_out], now=NOW + 60, **terms)).change
    assert going_on
    assert step(going_on, [*recreated, scaled_out], now=NOW + 60, **terms) == [
        EvictPod(scaled_out, Priority.INCREASE)
    ]
    odd = pod("odd", created=NOW + 61)
    reverting = reverting_change(step(going_on, [*recreated, odd], now=NOW + 90, **terms))
    assert reverting.reason.startswith("new pod odd has another size than the template")


def test_replacement_continues_evictions_after_hours_without_operator() -> None:
    """Only the operator evicts, so that a pause of the operator is not a stall."""
    evicting = change(Phase.PROMOTING, method=UpdateMethod.RECREATE, patches_template=True)
    terms: dict[str, Any] = {
        "wanted": desired_change(allow_recreate=True, can_resize_in_place=False),
        "template": AFTER,
    }
    back = NOW + 5 * DEADLINES.progress
    terms |= {"update": "OnDelete", "local": LocalObservations(observed_since=back)}
    going_on = step(evicting, one_by_one(2), now=back + DEADLINES.progress, **terms)
    assert [type(action) for action in going_on] == [EvictPod]
    reverting_change(step(evicting, one_by_one(2), now=back + DEADLINES.progress + 1, **terms))


def test_replacement_pauses_while_the_window_is_closed() -> None:
    """Otherwise the change was reverted by evictions outside any window."""
    opens = NOW // 86_400 * 86_400 + 86_400
    nights = [MaintenanceWindow(start="00:00", end="01:00", time_zone="UTC")]
    wanted = desired_change(allow_recreate=True, can_resize_in_place=False, windows=nights)
    evicting = change(Phase.PROMOTING, method=UpdateMethod.RECREATE, patches_template=True)
    terms: dict[str, Any] = {"wanted": wanted, "template": AFTER, "update": "OnDelete"}
    waits = step(evicting, one_by_one(2), now=opens - 1, **terms)
    (wait,) = waits
    assert isinstance(wait, Wait)
    assert wait.until == opens
    assert wait.reason.startswith("no maintenance window")
    assert [type(action) for action in step(evicting, one_by_one(2), now=opens, **terms)] == [EvictPod]
    starts = one_by_one(3, created=opens + 1, ready=False)
    assert "replaced pods" in wait_reason(step(evicting, starts, now=opens + 30, **terms))
    assert "replaced pods" in wait_reason(step(evicting, starts, now=opens + DEADLINES.progress, **terms))
    late = step(evicting, starts, now=opens + DEADLINES.progress + 1, **terms)
    assert (
        reverting_change(late).reason
        == "the controller did not replace the pods in time; check its rollout and events"
    )


def test_replacement_ends_although_a_window_opens_every_hour() -> None:
    hours = [
        MaintenanceWindow(start=f"{hour:02}:00", end=f"{hour:02}:30", time_zone="UTC")
        for hour in range(6, 22)
    ]
    wanted = desired_change(allow_recreate=True, can_resize_in_place=False, windows=hours)
    evicting = change(Phase.PROMOTING, method=UpdateMethod.RECREATE, patches_template=True)
    terms: dict[str, Any] = {"wanted": wanted, "template": AFTER, "update": "OnDelete"}
    broken = one_by_one(3, ready=False)
    next_hour = NOW // 3600 * 3600 + 3600
    assert wait_reason(step(evicting, broken, now=next_hour + 1800, **terms))
    late = step(evicting, broken, now=next_hour + 2 * 3600 + 1200, **terms)
    assert (
        reverting_change(late).reason
        == "the controller did not replace the pods in time; check its rollout and events"
    )


@pytest.mark.parametrize("way", [UpdateMethod.ROLLOUT, UpdateMethod.RECREATE])
def test_replacement_that_ended_during_an_operator_pause_is_verified_and_not_reverted(
    way: UpdateMethod,
) -> None:
    wanted = desired_change(allow_recreate=True, can_resize_in_place=False)
    promoting = change(Phase.PROMOTING, method=way, patches_template=True)
    come = [pod(f"new-{n}", sizes=AFTER, created=NOW + 60) for n in range(5)]
    recorded = written_annotations(
        step(promoting, come, now=NOW + 3 * DEADLINES.progress, wanted=wanted, template=AFTER)
    ).change
    assert recorded
    assert recorded.phase is Phase.VERIFYING


def test_rollout_that_stalls_is_reverted_even_outside_a_window() -> None:
    """Its controller waits for none: a quota is full, or the rollout is paused."""
    opens = NOW // 86_400 * 86_400 + 86_400
    nights = [MaintenanceWindow(start="00:00", end="01:00", time_zone="UTC")]
    wanted = desired_change(allow_recreate=True, can_resize_in_place=False, windows=nights)
    rolling = change(Phase.PROMOTING, method=UpdateMethod.ROLLOUT, patches_template=True)
    terms: dict[str, Any] = {"wanted": wanted, "template": AFTER, "rolling": True}
    assert "not in effect yet" in wait_reason(step(rolling, FIVE, now=NOW + 60, **terms))
    late = step(rolling, FIVE, now=opens - 1, **terms)
    assert (
        reverting_change(late).reason
        == "the controller did not replace the pods in time; check its rollout and events"
    )


PENDING = "PodResizePending"


def test_resize_that_is_infeasible_is_reverted_at_once() -> None:
    never = five_pods(
        AFTER, 4, applied={"web": SMALL}, resize=PodResize(PENDING, "Infeasible", "capacity: 2")
    )
    assert (
        reverting_change(step(change(), never)).reason
        == "pod web-4 cannot be resized on its node: capacity: 2"
    )


@pytest.mark.parametrize(
    ("resize", "patience"),
    [
        (PodResize(PENDING, "Deferred", "no capacity"), DEADLINES.deferred),
        (PodResize("PodResizeInProgress", "Error", "below usage"), DEADLINES.deferred),
        (PodResize("PodResizeInProgress", "", ""), DEADLINES.progress),
        (None, DEADLINES.progress),
    ],
)
def test_resize_without_effect_is_waited_for_and_reverted(resize: PodResize | None, patience: int) -> None:
    stuck = five_pods(AFTER, 4, applied={"web": SMALL}, resize=resize)
    seen = LocalObservations(unsettled_since={"uid-web-4": NOW})
    assert "not in effect yet" in wait_reason(step(change(), stuck, now=NOW + patience, local=seen))
    reverting_change(step(change(), stuck, now=NOW + patience + 1, local=seen))


@pytest.mark.parametrize("phase", [Phase.CANARY, Phase.PROMOTING])
def test_change_replaces_pods_without_node_capacity_if_allowed(phase: Phase) -> None:
    """VPA's InPlaceOrRecreate does the same: another node may have capacity, or a node may be added."""
    full = five_pods(AFTER, 4, applied={"web": SMALL}, resize=PodResize(PENDING, "Deferred", "no capacity"))
    terms: dict[str, Any] = {
        "wanted": desired_change(allow_recreate=True),
        "now": NOW + DEADLINES.deferred + 1,
        "local": LocalObservations(unsettled_since={"uid-web-4": NOW}),
    }
    actions = step(change(phase), full, **terms)
    rolled = written_annotations(actions).change
    assert rolled
    assert (rolled.method, rolled.phase, rolled.patches_template) == (
        UpdateMethod.ROLLOUT,
        Phase.PROMOTING,
        True,
    )
    assert [action.message for action in actions if isinstance(action, EmitEvent)] == [
        "replacing pods, because the node of pod web-4 has no capacity to resize it: no capacity"
    ]
    assert step(rolled, full, **terms) == [PatchTemplate(AFTER, take_ownership=False)]
    assert "replaced pods" in wait_reason(step(rolled, full, template=AFTER, rolling=True, **terms))
    by_hand = written_annotations(step(change(phase), full, update="OnDelete", **terms)).change
    assert by_hand
    assert by_hand.method is UpdateMethod.RECREATE
    evicted = step(by_hand, full, update="OnDelete", template=AFTER, **terms)
    assert [type(action) for action in evicted] == [EvictPod]
    reverting_change(step(change(phase), full, **terms | {"wanted": desired_change()}))


NO_CAPACITY = PodResize(PENDING, "Deferred", "no capacity")
MOVING: dict[str, Any] = {
    "wanted": desired_change(allow_recreate=True),
    "template": {"web": LARGE},
    "now": NOW + DEADLINES.deferred + 1,
    "local": LocalObservations(unsettled_since={f"uid-web-{n}": NOW for n in range(5)}),
}


def moving(phase: Phase = Phase.PROMOTING, **fields: Any) -> OngoingChange:
    """Return a change of five pods whose nodes have too little capacity for the size of their template."""
    return change(phase, **{"template": {"web": LARGE}, "evicts_pods": True} | fields)


def test_change_replaces_only_pods_without_capacity_if_the_template_suffices() -> None:
    """They are evicted one after the other and the others stay; a rollout would replace all."""
    full = five_pods(AFTER, *range(5), applied={"web": SMALL}, resize=NO_CAPACITY)
    assert written_annotations(step(moving(evicts_pods=False), full, **MOVING)).change == moving()
    first, signals = step(moving(), full, **MOVING)
    assert first == EvictPod(full[4], Priority.INCREASE)
    assert isinstance(signals, EmitEvent)
    assert (
        signals.message
        == "evicting pod web-4, because the node of pod web-4 has no capacity to resize it: no capacity"
    )
    starting = [*full[:4], pod("new", sizes=AFTER, created=NOW + 400, ready=False)]
    assert "1 pod of the workload is missing or not ready" in wait_reason(step(moving(), starting, **MOVING))
    ready = [*full[:4], pod("new", sizes=AFTER, created=NOW + 400)]
    (second, _) = step(moving(), ready, **MOVING)
    assert second == EvictPod(full[3], Priority.INCREASE)


def test_replacement_does_not_evict_a_new_pod_again() -> None:
    """As where a kubelet refuses every resize: each canary would be evicted for the one before it."""
    again = [
        *FIVE[:4],
        pod("new", sizes=AFTER, applied={"web": SMALL}, resize=NO_CAPACITY, created=NOW + 400),
    ]
    seen = {"local": LocalObservations(unsettled_since={"uid-new": NOW})}
    for chosen in (moving(Phase.CANARY, canaries=("new",), since=NOW + 500), moving()):
        rolled = written_annotations(
            step(chosen, [*five_pods(AFTER, *range(4))[:4], again[4]], **MOVING | seen)
        ).change
        assert rolled
        assert rolled.method is UpdateMethod.ROLLOUT


def test_replacement_resizes_a_new_pod_before_the_next_eviction() -> None:
    """No node may have capacity for the size of its template, and all pods would wait for it."""
    full = five_pods(AFTER, *range(5), applied={"web": SMALL}, resize=NO_CAPACITY)
    unschedulable = pod("new", sizes={"web": HUGE}, created=NOW + 400, ready=False, node="", phase="Pending")
    actions = step(
        moving(template={"web": HUGE}), [*full[:4], unschedulable], **MOVING | {"template": {"web": HUGE}}
    )
    assert actions == [ResizePod(unschedulable, AFTER, Priority.INCREASE)]


def test_replacement_of_a_canary_is_tried_before_another_eviction() -> None:
    four = [*FIVE[:4]]
    trying = moving(Phase.CANARY)
    assert wait_reason(step(trying, four, **MOVING | {"replicas": 5})).startswith(
        "1 pod of the workload is missing; "
    )
    new = pod("new", sizes={"web": LARGE}, created=NOW + 400, ready=False)
    chosen = written_annotations(step(trying, [*four, new], **MOVING)).change
    assert chosen
    assert (chosen.canaries, chosen.since) == (("new",), trying.since)


def test_replacement_waits_an_hour_for_an_evicted_pod() -> None:
    """A quota may have no capacity for the requests of its template."""
    four = five_pods(AFTER, *range(5))[:4]
    terms = MOVING | {"replicas": 5, "now": NOW + DEADLINES.progress}
    assert "on missing replicas (1)" in wait_reason(step(moving(), four, **terms))
    late = reverting_change(step(moving(), four, **terms | {"now": NOW + DEADLINES.progress + 1}))
    assert late.reason == "evicted pods were not created again (1 missing)"


def test_replacement_resizes_a_new_pod_after_the_window_closed() -> None:
    unschedulable = pod("new", sizes={"web": HUGE}, created=NOW + 400, ready=False, node="", phase="Pending")
    closed = desired_change(
        allow_recreate=True, windows=[MaintenanceWindow(start="00:00", end="01:00", time_zone="UTC")]
    )
    terms = MOVING | {"template": {"web": HUGE}, "wanted": closed}
    resized, waits = step(moving(template={"web": HUGE}), [*FIVE[:4], unschedulable], **terms)
    assert resized == ResizePod(unschedulable, AFTER, Priority.INCREASE)
    assert isinstance(waits, Wait)


def test_replacement_is_reverted_if_an_evicted_pod_finds_no_node() -> None:
    """Its earlier node has capacity for its earlier size."""
    unschedulable = pod("new", sizes=AFTER, created=NOW + 400, ready=False, node="", phase="Pending")
    for others in (
        five_pods(AFTER, *range(5)),
        five_pods(AFTER, *range(5), applied={"web": SMALL}, resize=NO_CAPACITY),
    ):
        waits = MOVING | {"now": NOW + 400 + DEADLINES.unscheduled}
        assert wait_reason(step(moving(), [*others[:4], unschedulable], **waits))
        waits["now"] += 1
        late = reverting_change(step(moving(), [*others[:4], unschedulable], **waits))
        assert late.reason == "no node has capacity for pod new with its new size"
        back = step(late, [*others[:4], unschedulable], **waits)
        assert ResizePod(unschedulable, {"web": SMALL}, Priority.REVERT) in back


def test_replacement_waits_an_hour_for_pods_without_capacity_that_cannot_be_evicted() -> None:
    """As under a disruption budget that allows none."""
    full = five_pods(AFTER, *range(5), applied={"web": SMALL}, resize=NO_CAPACITY)
    (still, _) = step(moving(), full, **MOVING | {"now": NOW + DEADLINES.progress})
    assert isinstance(still, EvictPod)
    late = step(moving(), full, **MOVING | {"now": NOW + DEADLINES.progress + 1})
    assert reverting_change(late).reason == "the node of pod web-4 has no capacity to resize it: no capacity"


def test_replacement_never_evicts_the_pod_of_a_job() -> None:
    full = five_pods(AFTER, *range(5), applied={"web": SMALL}, resize=NO_CAPACITY)
    reverting_change(step(moving(evicts_pods=False), full, resource=JOBS, **MOVING))


def test_replacement_does_not_start_if_it_would_remove_all_pods_at_once() -> None:
    never = five_pods(
        AFTER, 4, applied={"web": SMALL}, resize=PodResize(PENDING, "Infeasible", "capacity: 2")
    )
    reverting_change(step(change(), never, wanted=desired_change(allow_recreate=True), update="Recreate"))


def test_replacement_skips_daemonset_pods() -> None:
    never = five_pods(
        AFTER, 4, applied={"web": SMALL}, resize=PodResize(PENDING, "Infeasible", "capacity: 2")
    )
    reverting_change(step(change(), never, wanted=desired_change(allow_recreate=True), resource=DAEMON_SETS))


def test_change_continues_beside_a_later_pod_without_capacity() -> None:
    full = PodResize(PENDING, "Deferred", "no capacity")
    new = pod("new", sizes=AFTER, applied={"web": SMALL}, resize=full, created=NOW)
    late = [*five_pods(AFTER, *range(5)), new]
    terms: dict[str, Any] = {"local": LocalObservations(unsettled_since={"uid-new": NOW})}
    watched = change(Phase.VERIFYING, settled=NOW)
    assert "not in effect yet on pod new" in wait_reason(
        step(watched, late, now=NOW + DEADLINES.deferred + 1, **terms)
    )
    assert written_annotations(step(watched, late, now=NOW + 86_400, **terms)).applied


def test_change_waits_less_for_a_pod_too_large_for_each_node() -> None:
    rolling = change(Phase.PROMOTING, method=UpdateMethod.ROLLOUT, patches_template=True)
    pods = [*FIVE, pod("new", sizes=AFTER, node="", phase="Pending", ready=False, created=NOW)]
    terms: dict[str, Any] = {
        "wanted": desired_change(allow_recreate=True),
        "template": AFTER,
        "rolling": True,
    }
    assert "replaced pods" in wait_reason(step(rolling, pods, now=NOW + DEADLINES.unscheduled, **terms))
    late = step(rolling, pods, now=NOW + DEADLINES.unscheduled + 1, **terms)
    assert reverting_change(late).reason == "no node has capacity for pod new with its new size"
    just_back = terms | {"local": LocalObservations(observed_since=NOW + DEADLINES.unscheduled)}
    assert "replaced pods" in wait_reason(
        step(rolling, pods, now=NOW + DEADLINES.unscheduled + 1, **just_back)
    )


def test_change_chooses_new_canaries_if_all_are_gone() -> None:
    chosen = written_annotations(step(change(), FIVE[:4], now=NOW + 60)).change
    assert chosen
    assert (chosen.canaries, chosen.since) == (("web-3",), NOW + 60)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"rolling": True}, "somebody started a rollout of the workload during the change"),
        (
            {"template": {"web": Resources(7, 7, 7, 7)}},
            "somebody changed the sizes in the workload's template during the change",
        ),
    ],
)
def test_change_that_is_superseded_is_reverted_without_blame(facts: Any, reason: str) -> None:
    reverting = reverting_change(step(change(), FIVE, **facts))
    assert (reverting.reason, reverting.not_at_fault) == (reason, True)


# Promoted


def test_change_is_verified_on_all_pods_and_then_done() -> None:
    everyone = five_pods(AFTER, *range(5))
    watched = written_annotations(step(change(Phase.PROMOTING), everyone)).change
    assert watched
    assert (watched.phase, watched.settled) == (Phase.VERIFYING, NOW)
    done = written_annotations(step(watched, everyone, now=NOW + OBSERVATION))
    assert done.applied
    assert (done.change, done.applied.sizes, done.applied.at) == (None, AFTER, NOW + OBSERVATION)


def test_change_resizes_a_pod_that_is_created_during_verification() -> None:
    (resize,) = step(change(Phase.VERIFYING, settled=NOW), five_pods(AFTER, 0, 1, 2, 3))
    assert isinstance(resize, ResizePod)
    assert resize.pod.name == "web-4"


def test_change_with_template_always_tries_in_place_and_promotes_by_rollout() -> None:
    wanted = desired_change(allow_recreate=True, template=TemplateUpdate.ALWAYS, take_ownership=True)
    begins = start_change(observation(wanted, pods=FIVE))
    assert (begins.method, begins.canaries) == (UpdateMethod.ROLLOUT, ("web-4",))
    (resize,) = step(begins, FIVE, wanted=wanted)
    assert isinstance(resize, ResizePod)
    promoting = msgspec.structs.replace(begins, phase=Phase.PROMOTING)
    assert step(promoting, five_pods(AFTER, 4), wanted=wanted) == [PatchTemplate(AFTER, take_ownership=True)]
    rolling = step(promoting, five_pods(AFTER, 4), wanted=wanted, template=AFTER, rolling=True)
    assert "replaced pods" in wait_reason(rolling)


# Reverted


def test_revert_restores_exactly_the_earlier_sizes_of_changed_pods() -> None:
    other = {"web": Resources(123, None, 99 * MIB, 256 * MIB)}
    reverting = change(Phase.REVERTING, pod_overrides={"uid-web-1": other}, reason="harm")
    actions = step(reverting, five_pods(AFTER, 1, 2))
    assert {action.pod.name: action.sizes for action in actions if isinstance(action, ResizePod)} == {
        "web-1": other,
        "web-2": {"web": SMALL},
    }
    assert all(isinstance(action, ResizePod) and action.priority is Priority.REVERT for action in actions)


@given(some_resources(), some_resources(), st.none() | st.integers(0, 8192 * MIB))
def test_revert_lowers_memory_no_further_than_is_safe(
    before: Resources, after: Resources, need: int | None
) -> None:
    """It was put back to 256Mi while 400Mi were in use."""
    reverting = change(
        Phase.REVERTING, before={"web": before}, after={"web": after}, template={"web": before}
    )
    wanted = desired_change({"web": after}, needed_memory={} if need is None else {"web": need})
    actions = step(reverting, [pod(sizes={"web": after})], wanted=wanted, template={"web": before})
    for action in actions:
        if isinstance(action, ResizePod):
            now, limit = after.memory_limit, action.sizes["web"].memory_limit
            floor = now if need is None else min(now or 0, need)
            assert limit is None or limit >= min(floor or 0, now or 0)
    if not any(isinstance(action, ResizePod) for action in actions):
        assert written_annotations(actions).reverted


def test_change_resizes_pods_without_the_template_that_another_manager_owns() -> None:
    begins = start_change(observation(pods=FIVE, on=workload(update="OnDelete", replicas=5)))
    assert (begins.method, begins.patches_template) == (UpdateMethod.IN_PLACE, True)
    promoted = msgspec.structs.replace(begins, phase=Phase.PROMOTING)
    assert step(promoted, FIVE, update="OnDelete") == [PatchTemplate(AFTER, take_ownership=False)]
    refused = LocalObservations(
        rejections={rejection_key("uid-web", AFTER): Rejection("kubectl owns it", NOW)}
    )
    recorded = written_annotations(step(promoted, FIVE, update="OnDelete", local=refused)).change
    assert recorded is not None
    assert (recorded.phase, recorded.patches_template) == (Phase.PROMOTING, False)
    resized = step(recorded, FIVE, update="OnDelete", local=refused)
    assert {type(action) for action in resized} == {ResizePod}


def test_revert_waits_until_the_kubelet_undid_a_resize_without_capacity() -> None:
    """Its wait for the larger size began before the revert, and the one for the previous size does not count from then."""
    waiting = five_pods(AFTER, 4, applied={"web": SMALL}, resize=NO_CAPACITY)
    seen = LocalObservations().observe(waiting, NOW)
    late = NOW + DEADLINES.deferred + 1
    reverting = change(Phase.REVERTING, since=late, reason="no capacity")
    resized = five_pods({"web": SMALL}, 4, resize=NO_CAPACITY)
    seen = seen.observe(resized, late)
    assert "not in effect yet on pod web-4" in wait_reason(step(reverting, resized, now=late, local=seen))
    settled = five_pods({"web": SMALL}, 4)
    assert written_annotations(
        step(reverting, settled, now=late, local=seen.observe(settled, late + 1))
    ).reverted


def test_revert_restores_the_template_before_the_pods() -> None:
    wanted = desired_change(allow_recreate=True, can_resize_in_place=False)
    begins = start_change(observation(wanted, pods=FIVE, on=workload(update="OnDelete", replicas=5)))
    reverting = msgspec.structs.replace(begins, phase=Phase.REVERTING, reason="harm")
    first = step(reverting, five_pods(AFTER, 1, 2), wanted=wanted, template=AFTER, update="OnDelete")
    assert first == [PatchTemplate({"web": SMALL}, take_ownership=False)]
    then = step(reverting, five_pods(AFTER, 1, 2), wanted=wanted, update="OnDelete")
    assert [type(action) for action in then] == [EvictPod]


def test_revert_evicts_pods_one_after_the_other_and_unready_ones_first() -> None:
    wanted = desired_change(allow_recreate=True, can_resize_in_place=False)
    begins = start_change(observation(wanted, pods=FIVE, on=workload(update="OnDelete", replicas=5)))
    reverting = msgspec.structs.replace(begins, phase=Phase.REVERTING, reason="harm")
    on = workload(change_annotations=ChangeAnnotations(change=reverting), update="OnDelete", replicas=5)
    *others, last = five_pods(AFTER, *range(5))
    assert "1 pod of the workload is missing" in wait_reason(
        next_actions(observation(wanted, pods=others, on=on))
    )
    crashed = msgspec.structs.replace(last, ready=False)
    assert next_actions(observation(wanted, pods=[*others, crashed], on=on)) == [
        EvictPod(crashed, Priority.REVERT)
    ]


def test_revert_does_not_wait_for_an_unready_pod_that_was_not_changed() -> None:
    wanted = desired_change(allow_recreate=True, can_resize_in_place=False)
    begins = start_change(observation(wanted, pods=FIVE, on=workload(update="OnDelete", replicas=5)))
    reverting = msgspec.structs.replace(begins, phase=Phase.REVERTING, reason="harm")
    on = workload(change_annotations=ChangeAnnotations(change=reverting), update="OnDelete", replicas=5)
    unready_pod = msgspec.structs.replace(FIVE[0], ready=False)
    changed = [pod(f"web-{n}", sizes=AFTER, created=NOW + n) for n in range(1, 5)]
    (evicted,) = next_actions(observation(wanted, pods=[unready_pod, *changed], on=on))
    assert isinstance(evicted, EvictPod)
    back = [*changed[:3], pod("web-4", created=NOW + 60, ready=False)]
    assert "1 pod of the workload is missing" in wait_reason(
        next_actions(observation(wanted, pods=[unready_pod, *back], on=on))
    )


def test_revert_keeps_pods_whose_template_a_user_set_to_the_new_size() -> None:
    reverting = change(
        Phase.REVERTING, reason="somebody changed the sizes in the workload's template during the change"
    )
    done = written_annotations(step(reverting, five_pods(AFTER, *range(5)), template=AFTER))
    assert done.reverted


def test_cooldown_after_a_revert_grows() -> None:
    reverting = change(Phase.REVERTING, reason="harm")
    once = written_annotations(step(reverting, FIVE)).reverted
    assert once
    assert (once.why, once.times, once.until) == ("harm", 1, NOW + DEADLINES.min_cooldown)
    on = workload(change_annotations=ChangeAnnotations(change=reverting, reverted=once), replicas=5)
    twice = written_annotations(next_actions(observation(pods=FIVE, on=on))).reverted
    assert twice
    assert (twice.times, twice.until) == (2, NOW + 2 * DEADLINES.min_cooldown)
    waits = next_actions(
        observation(pods=FIVE, on=workload(change_annotations=ChangeAnnotations(reverted=once)))
    )
    assert waits == [
        Wait(once.until, "the last change was reverted: harm; next attempt at 2027-01-15T09:00:00Z")
    ]


@given(st.integers(1, 10_000))
def test_cooldown_is_never_longer_than_a_week(times: int) -> None:
    assert DEADLINES.min_cooldown <= compute_cooldown(times) <= DEADLINES.max_cooldown


def test_applied_sizes_stay_known_while_the_next_change_is_reverted() -> None:
    applied = AppliedSizes(id="x", at=NOW - 9999, sizes={"web": SMALL}, template={"web": SMALL})
    first = written_annotations(
        next_actions(
            observation(pods=FIVE, on=workload(change_annotations=ChangeAnnotations(applied=applied)))
        )
    )
    assert first.applied == applied
    reverting = ChangeAnnotations(change=change(Phase.REVERTING, reason="harm"), applied=applied)
    done = written_annotations(
        next_actions(observation(pods=FIVE, on=workload(change_annotations=reverting)))
    )
    assert (done.applied, done.change) == (applied, None)


# Synced


def applied_to(template: Sizes) -> ChangeAnnotations:
    return ChangeAnnotations(applied=AppliedSizes(id="x", at=NOW, sizes=AFTER, template=dict(template)))


def test_sync_pods_resizes_a_new_pod_to_the_applied_size() -> None:
    actions = next_actions(
        observation(
            pods=five_pods(AFTER, 0, 1, 2, 3), on=workload(change_annotations=applied_to({"web": SMALL}))
        )
    )
    assert [action.pod.name for action in actions if isinstance(action, ResizePod)] == ["web-4"]


def test_sync_pods_leaves_an_excluded_container_as_it_is() -> None:
    """As a proxy that a mesh injects, of another size from its next version on."""
    older, newer = {"proxy": SMALL}, {"proxy": LARGE}
    pods = [pod(f"web-{n}", sizes={"web": SMALL} | older) for n in range(4)] + [
        pod("new", sizes={"web": SMALL} | newer)
    ]
    wanted = desired_change(
        excluded_containers=frozenset({"proxy"}), canary=Canary(percent=100), startup_boost=StartupBoost()
    )
    begins = start_change(observation(wanted, pods=pods))
    assert (begins.before, begins.after, begins.pod_overrides) == ({"web": SMALL}, AFTER, {})
    on = workload(change_annotations=ChangeAnnotations(change=begins), replicas=5)
    resized = next_actions(observation(wanted, pods=pods, on=on))
    assert [action.sizes for action in resized if isinstance(action, ResizePod)] == [AFTER] * 5
    before_that = AppliedSizes(id="x", at=NOW, sizes=AFTER | older, template={"web": SMALL})
    starts = pod("starts", sizes={"web": SMALL} | newer, ready=False, created=NOW)
    observed = observation(
        wanted, pods=[starts], on=workload(change_annotations=ChangeAnnotations(applied=before_that))
    )
    assert [action.sizes for action in next_actions(observed) if isinstance(action, ResizePod)] == [
        AFTER | newer
    ]


def test_pod_sync_resizes_the_injected_container_of_a_new_pod() -> None:
    had, wanted = {"web": SMALL, "proxy": SMALL}, {"web": LARGE, "proxy": LARGE}
    applied = AppliedSizes(id="x", at=NOW - 60, sizes=wanted, template={"web": SMALL})
    on = workload(change_annotations=ChangeAnnotations(applied=applied), replicas=2)
    pods = [pod("web-0", sizes=wanted), pod("new", sizes=had, created=NOW)]
    resized = next_actions(observation(desired_change(wanted), pods=pods, on=on))
    assert [(action.pod.name, action.sizes) for action in resized if isinstance(action, ResizePod)] == [
        ("new", wanted)
    ]


@pytest.mark.parametrize("terms", [{"can_resize_in_place": False}, {"template": TemplateUpdate.ALWAYS}])
def test_sync_pods_does_not_size_injected_containers(terms: Any) -> None:
    """The injector gives the container its own size, and the whole change would be reverted for that."""
    injected = {"web": SMALL, "proxy": SMALL}
    pods = [pod(f"web-{n}", sizes=injected) for n in range(5)]
    both = desired_change({"web": LARGE, "proxy": LARGE}, allow_recreate=True, **terms)
    begins = start_change(observation(both, pods=pods))
    assert (begins.method, begins.before, begins.after) == (UpdateMethod.ROLLOUT, {"web": SMALL}, AFTER)
    new = [pod(f"new-{n}", sizes={"web": LARGE, "proxy": SMALL}, created=NOW + 10) for n in range(5)]
    promoted = msgspec.structs.replace(begins, phase=Phase.PROMOTING)
    rolled = written_annotations(step(promoted, new, wanted=both, template=AFTER, now=NOW + 60)).change
    assert rolled
    assert rolled.phase is Phase.VERIFYING
    only = desired_change({"proxy": LARGE}, allow_recreate=True, **terms)
    skipped = next_actions(observation(only, pods=pods))
    assert [action.reason for action in skipped if isinstance(action, Skip)] == [
        (
            "only replaced pods could get the size, but a new pod gets the size of container proxy from whoever "
            "injects it, not from the workload's template; set the size where the container is injected"
        )
    ]
    done = AppliedSizes(id="x", at=NOW - 86_400, sizes={"web": SMALL}, template={"web": SMALL})
    assert (
        next_actions(
            observation(
                only, pods=pods, on=workload(change_annotations=ChangeAnnotations(applied=done), replicas=5)
            )
        )
        == []
    )


def test_rollout_leaves_injected_containers_out_of_the_template() -> None:
    injected, wanted = {"web": SMALL, "proxy": SMALL}, {"web": LARGE, "proxy": LARGE}
    pods = [pod(f"web-{n}", sizes=injected, created=NOW - 1000 + n) for n in range(5)]
    both = desired_change(wanted, allow_recreate=True)
    trying = start_change(observation(both, pods=pods))
    never = PodResize(PENDING, "Infeasible", "capacity: 2")
    pods[4] = pod("web-4", sizes=wanted, applied=injected, resize=never, created=NOW - 996)
    rolled = written_annotations(step(trying, pods, wanted=both)).change
    assert rolled
    assert (rolled.method, rolled.after) == (UpdateMethod.ROLLOUT, AFTER)
    only = start_change(observation(desired_change({"proxy": LARGE}, allow_recreate=True), pods=pods[:4]))
    pods[3] = pod("web-3", sizes=injected | {"proxy": LARGE}, applied=injected, resize=never)
    reverting_change(step(only, pods[:4], wanted=both))


def test_sync_pods_resizes_a_crashing_new_pod_when_it_runs() -> None:
    change_annotations = applied_to({"web": SMALL})
    crashing = pod(created=NOW + 10, ready=False, waiting="CrashLoopBackOff")
    assert (
        writes(next_actions(observation(pods=[crashing], on=workload(change_annotations=change_annotations))))
        == []
    )
    (resize,) = next_actions(
        observation(
            pods=[pod(created=NOW + 10, ready=False)], on=workload(change_annotations=change_annotations)
        )
    )
    assert isinstance(resize, ResizePod)


def test_sync_pods_leaves_a_pod_that_another_resized() -> None:
    other = {"web": Resources(123, None, 99 * MIB, 256 * MIB)}
    pods = [*five_pods(AFTER, 0, 1, 2, 3)[:4], pod("web-4", sizes=other)]
    assert (
        next_actions(observation(pods=pods, on=workload(change_annotations=applied_to({"web": SMALL})))) == []
    )


def test_sync_pods_keeps_a_limit_that_admission_added() -> None:
    """A LimitRange added the limit; the server removes no limit in place and would reject the resize."""
    filled = {"web": msgspec.structs.replace(SMALL, cpu_limit=2000)}
    came = pod(sizes=filled, created=NOW + 10)
    (resize,) = next_actions(
        observation(pods=[came], on=workload(change_annotations=applied_to({"web": SMALL})))
    )
    assert isinstance(resize, ResizePod)
    assert resize.sizes == {"web": msgspec.structs.replace(LARGE, cpu_limit=2000)}


def test_applied_sizes_are_ignored_after_the_template_was_changed() -> None:
    new = {"web": Resources(200, None, 100 * MIB, 256 * MIB)}
    pods = [pod(f"web-{n}", sizes=new) for n in range(3)]
    on = workload(change_annotations=applied_to({"web": SMALL}), template=new)
    assert "updateStrategy.minInterval" in wait_reason(next_actions(observation(pods=pods, on=on)))


# Encoded and decoded


def test_change_annotations_keep_the_field_names_of_the_first_version() -> None:
    full = change(
        Phase.REVERTING, evicts_pods=True, renewed_at=1, pod_overrides={"x": {}}, not_at_fault=True,
        abandoned_at=2, abandon_reason="full",
    )  # fmt: skip
    text = encode_change_annotations(ChangeAnnotations(change=full), uid="u")[CHANGE_ANNOTATION]
    stored = msgspec.json.decode(text)["mark"]
    assert {name: stored[name] for name in ("way", "moved", "renews", "odd", "blameless", "gave_up", "gave_up_why")} == {
        "way": "InPlace", "moved": True, "renews": 1, "odd": {"x": {}}, "blameless": True, "gave_up": 2,
        "gave_up_why": "full",
    }  # fmt: skip
    assert decode_change_annotations({CHANGE_ANNOTATION: text}, uid="u") == ChangeAnnotations(change=full)


@pytest.mark.parametrize("message", ["x" * 5000, "denied\x1b[31m\nby a webhook"])
def test_start_revert_records_a_reason_that_is_read_back_unchanged(message: str) -> None:
    """A lost response is recognised by the annotations: a reason that changes on the way would hide it."""
    rejected = Rejection(message, NOW)
    local = LocalObservations(rejections={rejection_key("uid-web-0", AFTER): rejected})
    written = written_annotations(step(change(), five_pods(AFTER), local=local))
    assert written.change
    assert written.change.phase is Phase.REVERTING
    assert decode_change_annotations(encode_change_annotations(written, uid="u"), uid="u") == written


# Control characters are escaped when they are read: another may have written them.
printable_texts = st.text(st.characters(exclude_categories=["C", "Z"]), max_size=50)


@given(st.sampled_from(Phase), printable_texts, st.integers(0, 2**40))
def test_change_annotations_decode_as_they_were_encoded(phase: Phase, reason: str, until: int) -> None:
    change_annotations = ChangeAnnotations(
        change=change(phase, reason=reason, pod_overrides={"x": {"web": LARGE}}),
        applied=AppliedSizes(id="x", at=until, sizes=AFTER, template={}),
        reverted=RevertRecord(id="y", at=1, why=reason, times=3, until=until),
    )
    assert (
        decode_change_annotations(encode_change_annotations(change_annotations, uid="u"), uid="u")
        == change_annotations
    )
    assert (
        decode_change_annotations(encode_change_annotations(change_annotations, uid="u"), uid="v")
        == ChangeAnnotations()
    ), "the annotations of another object are ignored"


# Clocks


def test_clamp_future_times_keeps_the_intended_length_of_waits() -> None:
    ahead = NOW + 10 * 365 * 86_400
    applied = AppliedSizes(id="x", at=ahead, sizes={"web": SMALL}, template={"web": SMALL}, until=ahead)
    reverted = RevertRecord(id="x", at=ahead, why="it hurt", times=1, until=ahead + DEADLINES.min_cooldown)
    on = workload(change_annotations=ChangeAnnotations(applied=applied, reverted=reverted))
    right = written_annotations(next_actions(observation(on=on)))
    assert right.applied == msgspec.structs.replace(applied, at=NOW, until=NOW)
    assert right.reverted == msgspec.structs.replace(reverted, at=NOW, until=NOW + DEADLINES.min_cooldown)
    assert "it hurt" in wait_reason(next_actions(observation(on=workload(change_annotations=right))))


def test_change_started_by_a_clock_ahead_ends() -> None:
    began = change(Phase.VERIFYING, settled=NOW + 86_400)
    right = written_annotations(step(began, five_pods(AFTER, *range(5)))).change
    assert right == msgspec.structs.replace(began, settled=NOW)
    actions = step(right, five_pods(AFTER, *range(5)), now=NOW + OBSERVATION)
    assert written_annotations(actions).applied


def test_replacement_does_not_wait_for_a_time_from_a_clock_ahead() -> None:
    """Pods that come count as made by the change from a time on; written by that clock, none did for a day."""
    evicting = change(
        Phase.PROMOTING, method=UpdateMethod.RECREATE, patches_template=True, renewed_at=NOW + 86_400
    )
    terms: dict[str, Any] = {
        "wanted": desired_change(allow_recreate=True, can_resize_in_place=False),
        "template": AFTER,
        "update": "OnDelete",
    }
    odd = [*one_by_one(5, created=NOW + 30), pod("odd", created=NOW + 40)]
    right = written_annotations(step(evicting, odd, now=NOW + 20, **terms)).change
    assert right
    assert right.renewed_at == NOW + 20
    reverting = reverting_change(step(right, odd, now=NOW + 60, **terms))
    assert reverting.reason.startswith("new pod odd has another size than the template")


@given(st.integers(301, 10**9), st.data())
def test_clamp_future_times_leaves_no_time_in_the_future(ahead: int, data: st.DataObject) -> None:
    """Whichever field of it is a time: each is waited for somewhere."""
    times = ("started", "since", "settled", "renewed_at", "abandoned_at")
    chosen = data.draw(st.sets(st.sampled_from(times), min_size=1))
    began = change(Phase.PROMOTING, **dict.fromkeys(chosen, NOW + ahead))
    right = written_annotations(step(began, FIVE)).change
    assert all(getattr(right, name) <= NOW for name in times)


def test_change_tolerates_replicas_that_differ_by_a_second() -> None:
    applied = AppliedSizes(id="x", at=NOW + 2, sizes={"web": SMALL}, template={"web": SMALL})
    assert "minInterval" in wait_reason(
        next_actions(observation(on=workload(change_annotations=ChangeAnnotations(applied=applied))))
    )


# The organisation's limits are lowered during a change

GROWN = {"web": Resources(100, None, 64 * MIB, 768 * MIB)}
LOWERED = SizeLimits(memory=512 * MIB)


def limited(need: int | None = 0, sizes: Sizes = GROWN) -> DesiredChange:
    return replace(desired_change(sizes, needed_memory={"web": need}), size_limits=LOWERED)


@pytest.mark.parametrize("need", [0, 600 * MIB])
def test_change_beyond_limits_that_were_lowered_is_reverted_and_takes_no_needed_memory(need: int) -> None:
    """The pods of such a change were resized to the new limits at once, whatever they needed."""
    began = start_change(observation(desired_change(GROWN), pods=FIVE))
    promoting = msgspec.structs.replace(began, phase=Phase.PROMOTING, canaries=())
    pods = five_pods(GROWN, 0, 1)
    reverting = reverting_change(step(promoting, pods, wanted=limited(need)))
    assert (reverting.reason, reverting.not_at_fault) == (LIMITS_EXCEEDED, True)
    assert reverting.after == GROWN, "the revert recognises its pods"
    resized = [each for each in step(reverting, pods, wanted=limited(need)) if isinstance(each, ResizePod)]
    sizes = {each.pod.name: each.sizes["web"].memory_limit for each in resized}
    assert sizes == dict.fromkeys(("web-0", "web-1"), max(256 * MIB, need))


def test_change_keeps_a_size_beyond_the_limits_that_pods_had_before_it() -> None:
    """A change of CPU lowered memory to the new limits unchecked."""
    wanted = {"web": Resources(50, None, 64 * MIB, 512 * MIB)}
    pods = [pod(f"web-{n}", sizes=GROWN) for n in range(3)]
    began = start_change(observation(limited(None, wanted), pods=pods, on=workload(template={"web": SMALL})))
    assert began.after == {"web": Resources(50, None, 64 * MIB, 768 * MIB)}, "its need is unknown"
    some = start_change(
        observation(limited(600 * MIB, wanted), pods=pods, on=workload(template={"web": SMALL}))
    )
    assert some.after["web"].memory_limit == 600 * MIB, "not below what it needs"
    promoting = msgspec.structs.replace(began, phase=Phase.PROMOTING, canaries=())
    resized = [each for each in step(promoting, pods, wanted=limited(None)) if isinstance(each, ResizePod)]
    assert {each.sizes["web"].memory_limit for each in resized} == {768 * MIB}


def test_change_gives_no_pod_more_than_the_limits_and_what_pods_have() -> None:
    """Everyone who may annotate a workload can write such a change."""
    vast = {"web": Resources(100, None, 64 * MIB, 4096 * MIB)}
    forged = change(Phase.PROMOTING, before=vast, after=vast, canaries=())
    resized = [each for each in step(forged, FIVE, wanted=limited()) if isinstance(each, ResizePod)]
    assert {each.sizes["web"].memory_limit for each in resized} == {512 * MIB}
