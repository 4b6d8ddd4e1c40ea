"""The life of a change, step by step: begun, tried, watched, promoted, taken back."""

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
    begun,
    evidence,
    pod,
    situation,
    some_resources,
    warnings,
    why,
    wish,
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
    RevertRecord,
    UpdateMethod,
    decode_change_annotations,
    encode_change_annotations,
)
from trimtab.actuation.deadlines import DEADLINES
from trimtab.actuation.decide.health import (
    HarmSignals,
    PodHealth,
    ThrottlingSample,
    compare_health,
    health_since,
)
from trimtab.actuation.decide.observation import LocalObservations, Rejection, rejection_key
from trimtab.actuation.decide.revert import compute_cooldown
from trimtab.actuation.decide.transitions import next_actions
from trimtab.actuation.resources import Sizes
from trimtab.api.optimizationpolicy import (
    Canary,
    MaintenanceWindow,
    StartupBoost,
    TemplateUpdate,
)
from trimtab.kube.kinds.pods import ContainerTermination, Pod, PodResize, Resources
from trimtab.kube.rest.resources import DAEMON_SETS, JOBS

AFTER = {"web": LARGE}
HUGE = Resources(800, None, 256 * MIB, 256 * MIB)
FIVE = [pod(f"web-{n}", created=NOW - 1000 + n) for n in range(5)]
OBSERVATION = 600
PATIENCE = 1800


def change(phase: Phase = Phase.CANARY, **fields: Any) -> OngoingChange:
    """A change of five pods, `web-4` first."""
    return msgspec.structs.replace(begun(situation(pods=FIVE)), phase=phase, **fields)


def marks_of(deeds: list[ChangeAction]) -> ChangeAnnotations:
    (noted,) = [deed for deed in deeds if isinstance(deed, WriteAnnotations)]
    return noted.annotations


def step(
    under_way: OngoingChange, pods: list[Pod], *, wanted: Any = None, now: int = NOW, **terms: Any
) -> list[ChangeAction]:
    sightings = terms.pop("sightings", None)
    on = workload(marks=ChangeAnnotations(change=under_way), **{"replicas": len(pods)} | terms)
    return next_actions(
        situation(wanted or wish(needed_memory={"web": 0}), pods=pods, on=on, now=now, sightings=sightings)
    )


def sized(sizes: Sizes, *numbers: int, **facts: Any) -> list[Pod]:
    """Five pods, of which these have this size."""
    return [
        pod(f"web-{n}", created=NOW - 1000 + n, **({"sizes": sizes} | facts if n in numbers else {}))
        for n in range(5)
    ]


def turned_back(deeds: list[ChangeAction]) -> OngoingChange:
    noted = marks_of(deeds).change
    assert noted
    assert noted.phase is Phase.REVERTING
    assert warnings(deeds)[-1].endswith(f", because {noted.reason}")
    return noted


# Begun and tried


@pytest.mark.parametrize("ago", [3 * 3600, 23 * 3600, 25 * 3600])
def test_begin_restarts_pods_for_less_only_once_in_the_stabilization(ago: int) -> None:
    """They were restarted for every move of a noisy load: 13 rollouts of one Deployment in 4 days."""
    applied = AppliedSizes(id="x", at=NOW - ago + 600, sizes=AFTER, template=AFTER, restarted=NOW - ago)
    on = workload(template=AFTER, marks=ChangeAnnotations(applied=applied))
    terms: dict[str, Any] = {
        "allow_in_place_resize": False,
        "allow_recreate": True,
        "needed_memory": {"web": 0},
    }

    def deeds(sizes: Resources, **more: Any) -> list[ChangeAction]:
        wanted = replace(wish({"web": sizes}, **terms | more), stabilization=86_400)
        return next_actions(situation(wanted, pods=[pod(sizes=AFTER)], on=on))

    less, mixed = deeds(SMALL), deeds(Resources(100, None, 200 * MIB, 256 * MIB))
    if ago < 86_400:
        assert "they restart for a smaller size from" in why(less)
        only_more = marks_of(mixed).change
        assert only_more
        assert only_more.after == {"web": Resources(400, None, 200 * MIB, 256 * MIB)}
    else:
        assert marks_of(less).change
    in_place = marks_of(deeds(SMALL, allow_in_place_resize=True)).change
    assert in_place
    assert in_place.way is UpdateMethod.IN_PLACE


def test_change_keeps_restarts_of_pods_through_in_place_changes() -> None:
    settled = {"settled": NOW - OBSERVATION, "since": NOW - 3 * OBSERVATION}
    done = sized(AFTER, 0, 1, 2, 3, 4)
    restarts = change(Phase.VERIFYING, restarts=True, **settled)
    applied = marks_of(step(restarts, done)).applied
    assert applied
    assert applied.restarted == restarts.started
    on = workload(
        marks=ChangeAnnotations(change=change(Phase.VERIFYING, **settled), applied=applied), replicas=5
    )
    later = marks_of(next_actions(situation(wish(), pods=done, on=on))).applied
    assert later
    assert later.restarted == restarts.started


def test_change_is_annotated_before_a_pod_is_touched() -> None:
    deeds = next_actions(situation(pods=FIVE))
    assert [type(deed) for deed in writes(deeds)] == [WriteAnnotations]
    begins = change()
    assert (begins.before, begins.after, begins.template) == ({"web": SMALL}, AFTER, {"web": SMALL})


def test_change_starts_with_the_youngest_ready_pod() -> None:
    assert change().canaries == ("web-4",)
    (resize,) = step(change(), FIVE)
    assert isinstance(resize, ResizePod)
    assert (resize.pod.name, resize.sizes, resize.priority) == ("web-4", AFTER, Priority.INCREASE)


def test_change_of_a_single_pod_has_it_as_canary() -> None:
    alone = begun(situation())
    assert (alone.phase, alone.canaries) == (Phase.PROMOTING, ())


def test_relief_after_an_oom_kill_raises_all_pods_at_once() -> None:
    applied = AppliedSizes(id="x", at=NOW - 1, sizes={"web": SMALL}, template={"web": SMALL})
    unready = [pod(f"web-{n}", ready=n > 0) for n in range(5)]
    on = workload(marks=ChangeAnnotations(applied=applied), replicas=5)
    assert begun(situation(wish(is_urgent=True), pods=unready, on=on)).phase is Phase.PROMOTING


def test_relief_after_an_oom_kill_lowers_nothing() -> None:
    asked = Resources(1, 1, 512 * MIB, 512 * MIB)
    (given,) = begun(situation(wish({"web": asked}, is_urgent=True))).after.values()
    assert (given.memory_request, given.memory_limit) == (512 * MIB, SMALL.memory_limit and 512 * MIB)
    assert (given.cpu_request, given.cpu_limit) == (SMALL.cpu_request, SMALL.cpu_limit)


@pytest.mark.parametrize("may_recreate", [False, True])
def test_relief_after_an_oom_kill_keeps_a_limit_above_its_request_and_adds_none(
    *, may_recreate: bool
) -> None:
    """A policy that removes the limit of memory and sets one of CPU: both come later, with the care of any change."""
    wanted = wish({"web": Resources(400, 800, 512 * MIB, None)}, is_urgent=True, allow_recreate=may_recreate)
    begins = begun(situation(wanted))
    assert begins.way is UpdateMethod.IN_PLACE
    assert begins.after == {"web": Resources(400, None, 512 * MIB, 512 * MIB)}


def test_change_never_lowers_memory_of_an_oom_killed_workload() -> None:
    """Its next start may be minutes away, and the last kill may be seen only now."""
    killed = {"web": ContainerTermination("OOMKilled", 137, NOW - 2)}
    alone = begun(situation(wish(is_urgent=True), pods=[pod(created=NOW - 5, ready=False, exits=killed)]))
    assert (alone.health.killed, alone.health.unready) == (1, 1)
    again = [pod(sizes=AFTER, ready=False, exits={"web": ContainerTermination("OOMKilled", 137, NOW + 1)})]
    assert marks_of(step(alone, again, now=NOW + 2)).change.phase is Phase.VERIFYING  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "falling",
    [
        pod(ready=False, waiting="CrashLoopBackOff"),
        pod(ready=False, ended=True, exits={"web": ContainerTermination("OOMKilled", 137, NOW - 2)}),
    ],
    ids=["which is said", "which is not said yet"],
)
def test_change_resizes_a_crashing_pod_when_it_runs(falling: Pod) -> None:
    raised = begun(situation(wish(is_urgent=True), pods=[falling]))
    assert "is not in effect yet on pod web-0" in why(step(raised, [falling]))
    (resize,) = step(raised, [pod(ready=False)])
    assert isinstance(resize, ResizePod)


def test_change_replaces_a_pod_that_never_runs_long_enough_if_allowed() -> None:
    falling = pod(ready=False, waiting="CrashLoopBackOff")
    wanted = wish(is_urgent=True, allow_recreate=True)
    raised = begun(situation(wanted, pods=[falling]))
    assert raised.way is UpdateMethod.IN_PLACE
    assert "is not in effect yet" in why(
        step(raised, [falling], wanted=wanted, now=NOW + DEADLINES.crash_loop - 1)
    )
    rolled = marks_of(step(raised, [falling], wanted=wanted, now=NOW + DEADLINES.crash_loop)).change
    assert rolled
    assert (rolled.way, rolled.patches_template, rolled.before) == (UpdateMethod.ROLLOUT, True, raised.before)
    (patch,) = step(rolled, [falling], wanted=wanted, now=NOW + DEADLINES.crash_loop + 1)
    assert patch == PatchTemplate(AFTER, take_ownership=False)
    forbidden = wish(is_urgent=True)
    assert "is not in effect yet" in why(
        step(raised, [falling], wanted=forbidden, now=NOW + DEADLINES.crash_loop)
    )


def test_change_waits_only_for_a_while_for_a_pod_that_crashes_by_itself() -> None:
    falling = pod("web-0", ready=False, waiting="CrashLoopBackOff")
    pods = [falling, *(pod(f"web-{n}", sizes=AFTER) for n in range(1, 20))]
    promoting = change(Phase.PROMOTING)
    given_up = NOW + OBSERVATION + PATIENCE
    sightings = LocalObservations(observed_since=NOW)
    waits = step(promoting, pods, now=given_up - 1, sightings=sightings)
    assert "on pod web-0, which crashes before it can be resized" in why(waits)
    verifying = marks_of(step(promoting, pods, now=given_up, sightings=sightings)).change
    assert verifying
    assert verifying.phase is Phase.VERIFYING
    done = marks_of(step(verifying, pods, now=given_up + OBSERVATION + PATIENCE, sightings=sightings))
    assert done.applied


@pytest.mark.parametrize("phase", [Phase.CANARY, Phase.PROMOTING])
def test_change_starts_over_with_the_current_target_if_all_pods_crash_for_long(phase: Phase) -> None:
    falling = pod(ready=False, waiting="CrashLoopBackOff")
    begins = begun(situation(wish(is_urgent=True), pods=[falling]))
    under_way = msgspec.structs.replace(begins, phase=phase, canaries=("web-0",))
    taken = turned_back(step(under_way, [falling], now=NOW + OBSERVATION + PATIENCE))
    assert taken.blameless


def test_change_evicts_crashing_pods_of_an_on_delete_workload() -> None:
    falling, waiting = pod(ready=False, waiting="CrashLoopBackOff"), pod(ready=False)
    wanted = wish(is_urgent=True, allow_recreate=True, allow_in_place_resize=False)
    by_hand = workload(update="OnDelete")
    raised = begun(situation(wanted, pods=[falling], on=by_hand))
    assert raised.way is UpdateMethod.RECREATE

    def deeds(found: Pod) -> list[ChangeAction]:
        return step(raised, [found], wanted=wanted, template=AFTER, update="OnDelete")

    assert deeds(falling) == [EvictPod(falling, Priority.INCREASE)]
    assert not any(isinstance(deed, EvictPod) for deed in deeds(waiting))


@pytest.mark.parametrize(
    ("pods", "unready", "begins"), [(1, 1, False), (9, 1, False), (20, 2, True), (20, 3, False)]
)
def test_change_tolerates_a_few_unready_pods_of_many(*, pods: int, unready: int, begins: bool) -> None:
    some = [pod(f"web-{n}", ready=n >= unready) for n in range(pods)]
    assert bool(writes(next_actions(situation(pods=some)))) == begins


def test_pods_of_other_sizes_are_remembered_one_by_one() -> None:
    other = {"web": Resources(123, None, 99 * MIB, 256 * MIB)}
    assert begun(situation(pods=sized(other, 2))).odd == {"uid-web-2": other}


def test_pods_of_too_many_sizes_are_left_alone() -> None:
    crowd = [pod(f"web-{n}", sizes={"web": Resources(100 + n, None, MIB, 256 * MIB)}) for n in range(300)]
    assert "too many different sizes" in why(next_actions(situation(pods=crowd)))


@pytest.mark.parametrize(
    "text",
    ["?", "{}", '{"version": 1}', '{"version": 2, "uid": "uid-web"}', '{"version": 1, "uid": "uid-web"}'],
)
def test_next_deeds_does_nothing_while_an_annotation_is_unreadable(text: str) -> None:
    reason = why(next_actions(situation(pods=FIVE, on=workload(annotations={CHANGE_ANNOTATION: text}))))
    assert "remove the annotation trimtab.io/change" in reason


@pytest.mark.parametrize("version", [1, 2])
def test_next_deeds_passes_over_annotations_of_another_object(version: int) -> None:
    """A restore by Velero gives a workload a new uid and its old annotations."""
    undone = ChangeAnnotations(change=change(), applied=applied_to({"web": SMALL}).applied)
    restored = {
        key: text.replace('"version":1', f'"version":{version}')
        for key, text in encode_change_annotations(undone, uid="uid-before").items()
    }
    found = begun(situation(pods=FIVE, on=workload(annotations=restored, replicas=5)))
    assert (found.before, found.after) == ({"web": SMALL}, AFTER)


def test_change_does_not_start_while_a_guardrail_is_broken_or_unknown() -> None:
    for holds in (False, None):
        wanted = wish(harm_signals=evidence(guardrails={"latency": holds}))
        assert "guardrail latency" in why(next_actions(situation(wanted)))


def test_change_does_not_start_without_usage_unless_it_is_relief() -> None:
    away = wish(usage_error="prometheus: refused")
    assert (
        why(next_actions(situation(away)))
        == "usage cannot be read, so a change could not be verified: prometheus: refused"
    )
    assert begun(situation(wish(usage_error="prometheus: refused", is_urgent=True))).after == AFTER
    assert [type(deed) for deed in step(change(), FIVE, wanted=away)] == [ResizePod]


def test_change_keeps_a_limit_that_cannot_be_removed_in_place() -> None:
    limited = {"web": Resources(100, 200, 64 * MIB, 256 * MIB)}
    unlimited = {"web": Resources(300, None, 64 * MIB, 256 * MIB)}
    case = situation(wish(unlimited), pods=[pod(sizes=limited)], on=workload(template=limited))
    assert begun(case).after == {"web": Resources(300, 300, 64 * MIB, 256 * MIB)}
    recreated = situation(wish(unlimited, allow_recreate=True), pods=[pod(sizes=limited)])
    assert (begun(recreated).way, begun(recreated).after) == (UpdateMethod.ROLLOUT, unlimited)
    only = {"web": Resources(100, None, 64 * MIB, 256 * MIB)}
    assert "allowRecreate" in why(next_actions(situation(wish(only), pods=[pod(sizes=limited)])))


# Watched


def test_next_deeds_names_the_container_whose_requests_cannot_be_added_in_place() -> None:
    bare = {"web": Resources(None, None, 256 * MIB, 256 * MIB)}
    reason = why(
        next_actions(
            situation(wish({"web": Resources(400, None, 256 * MIB, 256 * MIB)}), pods=[pod(sizes=bare)])
        )
    )
    assert "(containers: web)" in reason
    assert reason.endswith("in the workload's template, or set allowRecreate: true")


def test_canary_observation_starts_when_sizes_are_in_effect() -> None:
    asked = sized(AFTER, 4, applied={"web": SMALL})
    assert "not in effect yet" in why(step(change(), asked))
    settled = marks_of(step(change(), sized(AFTER, 4))).change
    assert settled
    assert (settled.phase, settled.settled) == (Phase.CANARY, NOW)


def test_canary_is_promoted_after_a_good_observation() -> None:
    watched = change(settled=NOW)
    assert step(watched, sized(AFTER, 4), now=NOW + 1) == [
        Wait(
            NOW + 1 + DEADLINES.recheck,
            "observing pods with the new size for 10m0s (updateStrategy.canary.observation)",
        )
    ]
    promoted = marks_of(step(watched, sized(AFTER, 4), now=NOW + OBSERVATION)).change
    assert promoted
    assert promoted.phase is Phase.PROMOTING
    deeds = step(promoted, sized(AFTER, 4), now=NOW + OBSERVATION)
    assert [deed.pod.name for deed in deeds if isinstance(deed, ResizePod)] == [
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
    taken = turned_back(step(change(), sized(AFTER, 4, **facts), now=NOW + 10))
    assert taken.reason == reason
    assert not taken.blameless


def test_canary_that_is_unready_for_a_minute_is_reverted() -> None:
    unready, seen = sized(AFTER, 4, ready=False), LocalObservations(unready_since={"uid-web-4": NOW})
    waits = step(change(settled=NOW), unready, now=NOW + DEADLINES.unready - 1, sightings=seen)
    assert "observing" in why(waits), "a probe may fail once"
    taken = turned_back(step(change(settled=NOW), unready, now=NOW + DEADLINES.unready, sightings=seen))
    assert taken.reason == "1 of 1 pods are not ready, 0 of 5 before the change"


def test_restarts_from_before_the_change_are_not_held_against_it() -> None:
    before = {"web": ContainerTermination("Error", 1, NOW - 5)}
    assert "yet" not in why(step(change(settled=NOW), sized(AFTER, 4, exits=before), now=NOW + 10))


def test_canary_restart_by_the_resize_is_no_harm() -> None:
    wanted = wish(allow_recreate=True)
    restarting = [pod(f"web-{n}", created=NOW - 1000, restarts_when_resized=True) for n in range(5)]
    begins = begun(situation(wanted, pods=restarting))
    assert begins.restarts
    canary = sized(AFTER, 4, exits=FELL)
    noted = marks_of(step(begins, canary, wanted=wanted, now=NOW + 6)).change
    assert noted
    assert noted.settled == NOW + 6
    quick = sized(AFTER, 4, exits={"web": ContainerTermination("Error", 137, NOW + 6)})
    for fared in (canary, quick):
        assert "observing" in why(step(noted, fared, wanted=wanted, now=NOW + 9))
    again = sized(AFTER, 4, exits={"web": ContainerTermination("Error", 1, NOW + 8)})
    assert "restarted" in turned_back(step(noted, again, wanted=wanted, now=NOW + 9)).reason


def test_canary_is_reverted_for_throttling_or_a_broken_guardrail() -> None:
    before = PodHealth(pods=5, throttled=0.1)
    for share, guardrails, word in ((0.2, {}, "throttled in 20%"), (0.1, {"latency": False}, "latency")):
        known = HarmSignals(guardrails=guardrails)
        assert word in compare_health(before, PodHealth(pods=1, throttled=share), known).worse
    assert compare_health(before, PodHealth(pods=1, throttled=0.14), HarmSignals()).worse == ""


def test_throttling_counts_of_the_changed_pods_since_they_were_changed() -> None:
    others = {f"web-{n}": [ThrottlingSample(NOW + 20, 0.9)] for n in range(4)}
    of_canary = [
        ThrottlingSample(NOW - 60, 0.9),
        ThrottlingSample(NOW + 20, 0.1),
        ThrottlingSample(NOW + 40, 0.3),
    ]
    known = evidence(throttled={**others, "web-4": of_canary})
    canary = [pod("web-4")]

    def throttled(until: int) -> float | None:
        return health_since(canary, since=NOW, now=until, window=60, signals=known, known={}).throttled

    assert throttled(NOW + 60) == pytest.approx(0.2)
    assert throttled(NOW + 10) is None


def test_canary_without_evidence_waits_and_is_reverted() -> None:
    watched = change(settled=NOW)
    unknown = wish(harm_signals=evidence(guardrails={"latency": None}))
    over = NOW + OBSERVATION
    assert (
        why(step(watched, sized(AFTER, 4), wanted=unknown, now=over))
        == "guardrail latency cannot be evaluated; check its query"
    )
    given_up = step(watched, sized(AFTER, 4), wanted=unknown, now=over + PATIENCE)
    assert "within canary.evidenceTimeout" in turned_back(given_up).reason


def test_throttling_that_was_never_known_is_not_waited_for() -> None:
    assert compare_health(PodHealth(pods=5), PodHealth(pods=1), HarmSignals()).unknown == ""
    assert compare_health(PodHealth(pods=5, throttled=0.1), PodHealth(pods=1), HarmSignals()).unknown


def test_canary_without_a_cpu_limit_is_known_not_to_be_throttled() -> None:
    """Else to take a limit away, so that nobody is throttled, would be taken back each time."""
    limited, unlimited = ({"web": Resources(100, limit, 64 * MIB, 256 * MIB)} for limit in (200, None))
    told = evidence(throttled={"web-0": [ThrottlingSample(NOW - 60, 0.4)]})
    wanted = wish(unlimited, allow_recreate=True, harm_signals=told)
    begins = begun(situation(wanted, pods=[pod(sizes=limited)], on=workload(template=limited)))
    assert begins.health.throttled == pytest.approx(0.4)
    watched = msgspec.structs.replace(begins, phase=Phase.VERIFYING, settled=NOW)
    over = step(
        watched, [pod(sizes=unlimited, created=NOW)], template=unlimited, wanted=wanted, now=NOW + OBSERVATION
    )
    assert marks_of(over).applied, over


@pytest.mark.parametrize("update", ["RollingUpdate", "OnDelete"])
def test_pods_that_came_by_the_change_and_do_not_stay_ready_are_worse(update: str) -> None:
    """They are younger than the change; and only while they start is that no harm."""
    wanted = wish(allow_recreate=True, can_resize_in_place=False, canary=Canary(percent=100))
    begins = begun(situation(wanted, pods=FIVE, on=workload(update=update, replicas=5)))
    assert begins.way is (UpdateMethod.ROLLOUT if update == "RollingUpdate" else UpdateMethod.RECREATE)

    def pods(*unready: int, created: int = NOW + 10) -> list[Pod]:
        return [pod(f"web-{n}", sizes=AFTER, created=created, ready=n not in unready) for n in range(5)]

    terms: dict[str, Any] = {"wanted": wanted, "template": AFTER, "update": update}
    assert "not in effect yet" in why(step(begins, pods(4), now=NOW + 20, **terms)), "it starts"
    watched = marks_of(step(begins, pods(), now=NOW + 30, **terms)).change
    assert watched
    assert (watched.phase, watched.settled) == (Phase.VERIFYING, NOW + 30)
    assert "observing" in why(step(watched, pods(), now=NOW + 40, **terms))
    later = NOW + 40 + DEADLINES.unready
    seen = LocalObservations(unready_since={"uid-web-1": NOW + 40, "uid-web-3": NOW + 40})
    taken = turned_back(step(watched, pods(1, 3), now=later, sightings=seen, **terms))
    assert taken.reason == "2 of 5 pods are not ready, 0 of 5 before the change"
    newer = step(watched, pods(1, 3, created=NOW + 35), now=later, sightings=seen, **terms)
    assert why(newer), "those have yet to start: it is scaled out, or nodes were drained"


def test_pods_that_came_later_and_never_get_ready_are_waited_for_as_long_as_evidence_is() -> None:
    wanted = wish(allow_recreate=True, can_resize_in_place=False)
    later = [pod("web-0", sizes=AFTER), pod("web-1", sizes=AFTER, created=NOW + 60, ready=False)]
    terms: dict[str, Any] = {"wanted": wanted, "template": AFTER}
    watched = change(Phase.VERIFYING, way=UpdateMethod.ROLLOUT, patches_template=True, settled=NOW)
    patience = NOW + 60 + OBSERVATION + PATIENCE
    assert "not in effect yet" in why(step(watched, later, now=patience - 1, **terms))
    assert "after the deadline" in turned_back(step(watched, later, now=patience, **terms)).reason
    relief = msgspec.structs.replace(watched, relief=True)
    assert marks_of(step(relief, later, now=patience, **terms)).applied, "the others need it"
    falls = pod("web-1", created=NOW + 60, ready=False, waiting="CrashLoopBackOff")
    in_place = change(Phase.VERIFYING, settled=NOW)
    assert "on pod web-1" in why(step(in_place, [later[0], falls], now=patience - 1))
    assert marks_of(step(in_place, [later[0], falls], now=patience)).applied, "it is resized once it runs"


def test_evidence_is_waited_for_since_somebody_asks_for_it() -> None:
    watched, late = change(Phase.VERIFYING, settled=NOW), NOW + 10 * (OBSERVATION + PATIENCE)
    terms: dict[str, Any] = {"wanted": wish(harm_signals=evidence(guardrails={"latency": None})), "now": late}
    pods = sized(AFTER, *range(5))
    assert "latency" in why(step(watched, pods, sightings=LocalObservations(observed_since=late), **terms))
    assert "within canary.evidenceTimeout" in turned_back(step(watched, pods, **terms)).reason


def test_pods_that_have_just_come_are_waited_for_however_long_nobody_looked() -> None:
    """An operator that was away comes back while nodes are drained, and with many pods not ready yet."""
    watched = change(Phase.VERIFYING, way=UpdateMethod.ROLLOUT, patches_template=True, settled=NOW)
    wanted, now = wish(allow_recreate=True, can_resize_in_place=False), NOW + OBSERVATION + PATIENCE + 3600
    drained = [pod("web-0", sizes=AFTER), pod("web-1", sizes=AFTER, created=now - 30, ready=False)]
    assert "not in effect yet" in why(step(watched, drained, now=now, wanted=wanted, template=AFTER))


def test_pods_that_come_all_the_time_are_not_waited_for_for_ever() -> None:
    """As where an autoscaler adds one every minute: one has always just come, and is not ready yet."""
    watched = change(Phase.VERIFYING, way=UpdateMethod.ROLLOUT, patches_template=True, settled=NOW)
    wanted, late = wish(allow_recreate=True, can_resize_in_place=False), NOW + 86_400 + OBSERVATION + PATIENCE
    terms: dict[str, Any] = {
        "wanted": wanted,
        "template": AFTER,
        "sightings": LocalObservations(observed_since=NOW),
    }
    for now, waits in ((late - 1, True), (late, False)):
        busy = [pod("web-0", sizes=AFTER), pod("web-1", sizes=AFTER, created=now - 30, ready=False)]
        assert (writes(step(watched, busy, now=now, **terms)) == []) is waits


def one_by_one(replaced: int, *, ready: bool = True, created: int = NOW) -> list[Pod]:
    """Five pods that are being evicted, of which so many have come anew, the last of them at this time."""
    anew = [pod(f"new-{n}", sizes=AFTER, created=NOW) for n in range(replaced - 1)]
    last = [pod("new", sizes=AFTER, created=created, ready=ready)]
    return [*FIVE[replaced:], *anew, *last]


def test_pods_that_are_replaced_slowly_are_waited_for_as_long_as_one_comes_in_an_hour() -> None:
    wanted = wish(allow_recreate=True, can_resize_in_place=False)
    evicting = change(Phase.PROMOTING, way=UpdateMethod.RECREATE, patches_template=True)
    terms: dict[str, Any] = {"wanted": wanted, "template": AFTER, "update": "OnDelete"}
    came = NOW + 4 * DEADLINES.progress
    going_on = step(evicting, one_by_one(3, created=came), now=came + DEADLINES.progress, **terms)
    assert [type(deed) for deed in going_on] == [EvictPod]
    broken = one_by_one(3, created=came, ready=False)
    assert why(step(evicting, broken, now=NOW + DEADLINES.progress, **terms))
    late = step(evicting, broken, now=NOW + DEADLINES.progress + 1, **terms)
    assert (
        turned_back(late).reason
        == "the controller did not replace the pods in time; check its rollout and events"
    )


def test_replacement_evicts_once_a_pod_made_before_the_template_was_seen() -> None:
    evicting = change(Phase.PROMOTING, way=UpdateMethod.RECREATE, patches_template=True)
    wanted = wish(allow_recreate=True, can_resize_in_place=False)
    terms: dict[str, Any] = {"wanted": wanted, "template": AFTER, "update": "OnDelete"}
    unseen = step(evicting, FIVE, **terms, is_spec_observed=False)
    assert "has not observed the changed template yet" in why(unseen)
    anew = [pod(f"new-{n}", sizes=AFTER, created=NOW + 30 + n) for n in range(4)]
    scaled_out = pod("old", created=NOW + 1)
    going_on = marks_of(step(evicting, [*anew, scaled_out], now=NOW + 60, **terms)).change
    assert going_on
    assert step(going_on, [*anew, scaled_out], now=NOW + 60, **terms) == [
        EvictPod(scaled_out, Priority.INCREASE)
    ]
    odd = pod("odd", created=NOW + 61)
    taken = turned_back(step(going_on, [*anew, odd], now=NOW + 90, **terms))
    assert taken.reason.startswith("new pod odd has another size than the template")


def test_replacement_continues_evictions_after_hours_without_operator() -> None:
    """Nobody but it would have: that is not in vain yet."""
    evicting = change(Phase.PROMOTING, way=UpdateMethod.RECREATE, patches_template=True)
    terms: dict[str, Any] = {
        "wanted": wish(allow_recreate=True, can_resize_in_place=False),
        "template": AFTER,
    }
    back = NOW + 5 * DEADLINES.progress
    terms |= {"update": "OnDelete", "sightings": LocalObservations(observed_since=back)}
    going_on = step(evicting, one_by_one(2), now=back + DEADLINES.progress, **terms)
    assert [type(deed) for deed in going_on] == [EvictPod]
    turned_back(step(evicting, one_by_one(2), now=back + DEADLINES.progress + 1, **terms))


def test_replacement_pauses_while_the_window_is_closed() -> None:
    """Else they were taken back, by evictions that no window had been opened for."""
    opens = NOW // 86_400 * 86_400 + 86_400
    nights = [MaintenanceWindow(start="00:00", end="01:00", time_zone="UTC")]
    wanted = wish(allow_recreate=True, can_resize_in_place=False, windows=nights)
    evicting = change(Phase.PROMOTING, way=UpdateMethod.RECREATE, patches_template=True)
    terms: dict[str, Any] = {"wanted": wanted, "template": AFTER, "update": "OnDelete"}
    waits = step(evicting, one_by_one(2), now=opens - 1, **terms)
    (wait,) = waits
    assert isinstance(wait, Wait)
    assert wait.until == opens
    assert wait.reason.startswith("no maintenance window")
    assert [type(deed) for deed in step(evicting, one_by_one(2), now=opens, **terms)] == [EvictPod]
    starts = one_by_one(3, created=opens + 1, ready=False)
    assert "replaced pods" in why(step(evicting, starts, now=opens + 30, **terms))
    assert "replaced pods" in why(step(evicting, starts, now=opens + DEADLINES.progress, **terms))
    late = step(evicting, starts, now=opens + DEADLINES.progress + 1, **terms)
    assert (
        turned_back(late).reason
        == "the controller did not replace the pods in time; check its rollout and events"
    )


def test_windows_that_open_every_hour_do_not_have_a_pod_waited_for_for_ever() -> None:
    hours = [
        MaintenanceWindow(start=f"{hour:02}:00", end=f"{hour:02}:30", time_zone="UTC")
        for hour in range(6, 22)
    ]
    wanted = wish(allow_recreate=True, can_resize_in_place=False, windows=hours)
    evicting = change(Phase.PROMOTING, way=UpdateMethod.RECREATE, patches_template=True)
    terms: dict[str, Any] = {"wanted": wanted, "template": AFTER, "update": "OnDelete"}
    broken = one_by_one(3, ready=False)
    next_hour = NOW // 3600 * 3600 + 3600
    assert why(step(evicting, broken, now=next_hour + 1800, **terms))
    late = step(evicting, broken, now=next_hour + 2 * 3600 + 1200, **terms)
    assert (
        turned_back(late).reason
        == "the controller did not replace the pods in time; check its rollout and events"
    )


@pytest.mark.parametrize("way", [UpdateMethod.ROLLOUT, UpdateMethod.RECREATE])
def test_pods_that_were_all_replaced_while_nobody_looked_are_watched_and_not_taken_back(
    way: UpdateMethod,
) -> None:
    wanted = wish(allow_recreate=True, can_resize_in_place=False)
    promoting = change(Phase.PROMOTING, way=way, patches_template=True)
    come = [pod(f"new-{n}", sizes=AFTER, created=NOW + 60) for n in range(5)]
    noted = marks_of(
        step(promoting, come, now=NOW + 3 * DEADLINES.progress, wanted=wanted, template=AFTER)
    ).change
    assert noted
    assert noted.phase is Phase.VERIFYING


def test_rollout_that_stalls_is_reverted_even_outside_a_window() -> None:
    """Its controller waits for none: a quota is full, or the rollout is paused."""
    opens = NOW // 86_400 * 86_400 + 86_400
    nights = [MaintenanceWindow(start="00:00", end="01:00", time_zone="UTC")]
    wanted = wish(allow_recreate=True, can_resize_in_place=False, windows=nights)
    rolling = change(Phase.PROMOTING, way=UpdateMethod.ROLLOUT, patches_template=True)
    terms: dict[str, Any] = {"wanted": wanted, "template": AFTER, "rolling": True}
    assert "not in effect yet" in why(step(rolling, FIVE, now=NOW + 60, **terms))
    late = step(rolling, FIVE, now=opens - 1, **terms)
    assert (
        turned_back(late).reason
        == "the controller did not replace the pods in time; check its rollout and events"
    )


PENDING = "PodResizePending"


def test_resize_that_is_infeasible_is_reverted_at_once() -> None:
    never = sized(AFTER, 4, applied={"web": SMALL}, resize=PodResize(PENDING, "Infeasible", "capacity: 2"))
    assert turned_back(step(change(), never)).reason == "pod web-4 cannot be resized on its node: capacity: 2"


@pytest.mark.parametrize(
    ("resize", "patience"),
    [
        (PodResize(PENDING, "Deferred", "no room"), DEADLINES.deferred),
        (PodResize("PodResizeInProgress", "Error", "below usage"), DEADLINES.deferred),
        (PodResize("PodResizeInProgress", "", ""), DEADLINES.progress),
        (None, DEADLINES.progress),
    ],
)
def test_resize_without_effect_is_waited_for_and_reverted(resize: PodResize | None, patience: int) -> None:
    stuck = sized(AFTER, 4, applied={"web": SMALL}, resize=resize)
    seen = LocalObservations(unsettled_since={"uid-web-4": NOW})
    assert "not in effect yet" in why(step(change(), stuck, now=NOW + patience, sightings=seen))
    turned_back(step(change(), stuck, now=NOW + patience + 1, sightings=seen))


@pytest.mark.parametrize("phase", [Phase.CANARY, Phase.PROMOTING])
def test_pods_for_which_their_node_has_no_room_are_replaced_where_they_may_be(phase: Phase) -> None:
    """As VPA's InPlaceOrRecreate does: on another node there may be room, or one may come."""
    full = sized(AFTER, 4, applied={"web": SMALL}, resize=PodResize(PENDING, "Deferred", "no room"))
    terms: dict[str, Any] = {
        "wanted": wish(allow_recreate=True),
        "now": NOW + DEADLINES.deferred + 1,
        "sightings": LocalObservations(unsettled_since={"uid-web-4": NOW}),
    }
    deeds = step(change(phase), full, **terms)
    rolled = marks_of(deeds).change
    assert rolled
    assert (rolled.way, rolled.phase, rolled.patches_template) == (
        UpdateMethod.ROLLOUT,
        Phase.PROMOTING,
        True,
    )
    assert [deed.message for deed in deeds if isinstance(deed, EmitEvent)] == [
        "replacing pods, because the node of pod web-4 has no capacity to resize it: no room"
    ]
    assert step(rolled, full, **terms) == [PatchTemplate(AFTER, take_ownership=False)]
    assert "replaced pods" in why(step(rolled, full, template=AFTER, rolling=True, **terms))
    by_hand = marks_of(step(change(phase), full, update="OnDelete", **terms)).change
    assert by_hand
    assert by_hand.way is UpdateMethod.RECREATE
    evicted = step(by_hand, full, update="OnDelete", template=AFTER, **terms)
    assert [type(deed) for deed in evicted] == [EvictPod]
    turned_back(step(change(phase), full, **terms | {"wanted": wish()}))


NO_ROOM = PodResize(PENDING, "Deferred", "no room")
MOVING: dict[str, Any] = {
    "wanted": wish(allow_recreate=True),
    "template": {"web": LARGE},
    "now": NOW + DEADLINES.deferred + 1,
    "sightings": LocalObservations(unsettled_since={f"uid-web-{n}": NOW for n in range(5)}),
}


def moving(phase: Phase = Phase.PROMOTING, **fields: Any) -> OngoingChange:
    """A change of five pods for which not every node has room, though their template asks for as much."""
    return change(phase, **{"template": {"web": LARGE}, "moved": True} | fields)


def test_resize_replaces_only_pods_without_room_if_the_template_suffices() -> None:
    """One after the other, and others keep what they have: a rollout would replace them all."""
    full = sized(AFTER, *range(5), applied={"web": SMALL}, resize=NO_ROOM)
    assert marks_of(step(moving(moved=False), full, **MOVING)).change == moving()
    first, told = step(moving(), full, **MOVING)
    assert first == EvictPod(full[4], Priority.INCREASE)
    assert isinstance(told, EmitEvent)
    assert (
        told.message
        == "evicting pod web-4, because the node of pod web-4 has no capacity to resize it: no room"
    )
    starting = [*full[:4], pod("new", sizes=AFTER, created=NOW + 400, ready=False)]
    assert "1 pod of the workload is missing or not ready" in why(step(moving(), starting, **MOVING))
    ready = [*full[:4], pod("new", sizes=AFTER, created=NOW + 400)]
    (second, _) = step(moving(), ready, **MOVING)
    assert second == EvictPod(full[3], Priority.INCREASE)


def test_replacement_does_not_evict_a_new_pod_again() -> None:
    """As where a kubelet refuses every resize: each canary would be evicted for the one before it."""
    again = [*FIVE[:4], pod("new", sizes=AFTER, applied={"web": SMALL}, resize=NO_ROOM, created=NOW + 400)]
    seen = {"sightings": LocalObservations(unsettled_since={"uid-new": NOW})}
    for chosen in (moving(Phase.CANARY, canaries=("new",), since=NOW + 500), moving()):
        rolled = marks_of(step(chosen, [*sized(AFTER, *range(4))[:4], again[4]], **MOVING | seen)).change
        assert rolled
        assert rolled.way is UpdateMethod.ROLLOUT


def test_replacement_resizes_a_new_pod_before_the_next_eviction() -> None:
    """For the size of its template there may be no room anywhere, and all would wait for it."""
    full = sized(AFTER, *range(5), applied={"web": SMALL}, resize=NO_ROOM)
    homeless = pod("new", sizes={"web": HUGE}, created=NOW + 400, ready=False, node="", phase="Pending")
    deeds = step(
        moving(template={"web": HUGE}), [*full[:4], homeless], **MOVING | {"template": {"web": HUGE}}
    )
    assert deeds == [ResizePod(homeless, AFTER, Priority.INCREASE)]


def test_replacement_of_a_canary_is_tried_before_another_eviction() -> None:
    four = [*FIVE[:4]]
    trying = moving(Phase.CANARY)
    assert why(step(trying, four, **MOVING | {"replicas": 5})).startswith(
        "1 pod of the workload is missing; "
    )
    new = pod("new", sizes={"web": LARGE}, created=NOW + 400, ready=False)
    chosen = marks_of(step(trying, [*four, new], **MOVING)).change
    assert chosen
    assert (chosen.canaries, chosen.since) == (("new",), trying.since)


def test_replacement_waits_an_hour_for_an_evicted_pod() -> None:
    """As where a quota has no room for what its template asks."""
    four = sized(AFTER, *range(5))[:4]
    terms = MOVING | {"replicas": 5, "now": NOW + DEADLINES.progress}
    assert "on missing replicas (1)" in why(step(moving(), four, **terms))
    late = turned_back(step(moving(), four, **terms | {"now": NOW + DEADLINES.progress + 1}))
    assert late.reason == "evicted pods were not created again (1 missing)"


def test_replacement_resizes_a_new_pod_after_the_window_closed() -> None:
    homeless = pod("new", sizes={"web": HUGE}, created=NOW + 400, ready=False, node="", phase="Pending")
    closed = wish(
        allow_recreate=True, windows=[MaintenanceWindow(start="00:00", end="01:00", time_zone="UTC")]
    )
    terms = MOVING | {"template": {"web": HUGE}, "wanted": closed}
    resized, waits = step(moving(template={"web": HUGE}), [*FIVE[:4], homeless], **terms)
    assert resized == ResizePod(homeless, AFTER, Priority.INCREASE)
    assert isinstance(waits, Wait)


def test_replacement_is_reverted_if_an_evicted_pod_finds_no_node() -> None:
    """There it was before is room for it as it was."""
    homeless = pod("new", sizes=AFTER, created=NOW + 400, ready=False, node="", phase="Pending")
    for others in (sized(AFTER, *range(5)), sized(AFTER, *range(5), applied={"web": SMALL}, resize=NO_ROOM)):
        waits = MOVING | {"now": NOW + 400 + DEADLINES.unscheduled}
        assert why(step(moving(), [*others[:4], homeless], **waits))
        waits["now"] += 1
        late = turned_back(step(moving(), [*others[:4], homeless], **waits))
        assert late.reason == "no node has capacity for pod new with its new size"
        back = step(late, [*others[:4], homeless], **waits)
        assert ResizePod(homeless, {"web": SMALL}, Priority.REVERT) in back


def test_pods_without_room_that_nobody_lets_go_are_waited_for_for_an_hour() -> None:
    """As under a disruption budget that allows none."""
    full = sized(AFTER, *range(5), applied={"web": SMALL}, resize=NO_ROOM)
    (still, _) = step(moving(), full, **MOVING | {"now": NOW + DEADLINES.progress})
    assert isinstance(still, EvictPod)
    late = step(moving(), full, **MOVING | {"now": NOW + DEADLINES.progress + 1})
    assert turned_back(late).reason == "the node of pod web-4 has no capacity to resize it: no room"


def test_replacement_never_evicts_the_pod_of_a_job() -> None:
    full = sized(AFTER, *range(5), applied={"web": SMALL}, resize=NO_ROOM)
    turned_back(step(moving(moved=False), full, resource=JOBS, **MOVING))


def test_pods_that_would_all_go_at_once_are_not_replaced_for_want_of_room() -> None:
    never = sized(AFTER, 4, applied={"web": SMALL}, resize=PodResize(PENDING, "Infeasible", "capacity: 2"))
    turned_back(step(change(), never, wanted=wish(allow_recreate=True), update="Recreate"))


def test_replacement_skips_daemonset_pods() -> None:
    never = sized(AFTER, 4, applied={"web": SMALL}, resize=PodResize(PENDING, "Infeasible", "capacity: 2"))
    turned_back(step(change(), never, wanted=wish(allow_recreate=True), resource=DAEMON_SETS))


def test_change_continues_beside_a_later_pod_without_room() -> None:
    full = PodResize(PENDING, "Deferred", "no room")
    new = pod("new", sizes=AFTER, applied={"web": SMALL}, resize=full, created=NOW)
    late = [*sized(AFTER, *range(5)), new]
    terms: dict[str, Any] = {"sightings": LocalObservations(unsettled_since={"uid-new": NOW})}
    watched = change(Phase.VERIFYING, settled=NOW)
    assert "not in effect yet on pod new" in why(
        step(watched, late, now=NOW + DEADLINES.deferred + 1, **terms)
    )
    assert marks_of(step(watched, late, now=NOW + 86_400, **terms)).applied


def test_change_waits_less_for_a_pod_too_large_for_each_node() -> None:
    rolling = change(Phase.PROMOTING, way=UpdateMethod.ROLLOUT, patches_template=True)
    pods = [*FIVE, pod("new", sizes=AFTER, node="", phase="Pending", ready=False, created=NOW)]
    terms: dict[str, Any] = {"wanted": wish(allow_recreate=True), "template": AFTER, "rolling": True}
    assert "replaced pods" in why(step(rolling, pods, now=NOW + DEADLINES.unscheduled, **terms))
    late = step(rolling, pods, now=NOW + DEADLINES.unscheduled + 1, **terms)
    assert turned_back(late).reason == "no node has capacity for pod new with its new size"
    just_back = terms | {"sightings": LocalObservations(observed_since=NOW + DEADLINES.unscheduled)}
    assert "replaced pods" in why(step(rolling, pods, now=NOW + DEADLINES.unscheduled + 1, **just_back))


def test_canaries_that_are_all_gone_are_replaced() -> None:
    chosen = marks_of(step(change(), FIVE[:4], now=NOW + 60)).change
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
    taken = turned_back(step(change(), FIVE, **facts))
    assert (taken.reason, taken.blameless) == (reason, True)


# Promoted


def test_change_is_verified_on_all_pods_and_then_done() -> None:
    everyone = sized(AFTER, *range(5))
    watched = marks_of(step(change(Phase.PROMOTING), everyone)).change
    assert watched
    assert (watched.phase, watched.settled) == (Phase.VERIFYING, NOW)
    done = marks_of(step(watched, everyone, now=NOW + OBSERVATION))
    assert done.applied
    assert (done.change, done.applied.sizes, done.applied.at) == (None, AFTER, NOW + OBSERVATION)


def test_change_resizes_a_pod_that_is_created_during_verification() -> None:
    (resize,) = step(change(Phase.VERIFYING, settled=NOW), sized(AFTER, 0, 1, 2, 3))
    assert isinstance(resize, ResizePod)
    assert resize.pod.name == "web-4"


def test_always_tries_in_place_and_promotes_by_a_rollout() -> None:
    wanted = wish(allow_recreate=True, template=TemplateUpdate.ALWAYS, take_ownership=True)
    begins = begun(situation(wanted, pods=FIVE))
    assert (begins.way, begins.canaries) == (UpdateMethod.ROLLOUT, ("web-4",))
    (resize,) = step(begins, FIVE, wanted=wanted)
    assert isinstance(resize, ResizePod)
    promoting = msgspec.structs.replace(begins, phase=Phase.PROMOTING)
    assert step(promoting, sized(AFTER, 4), wanted=wanted) == [PatchTemplate(AFTER, take_ownership=True)]
    rolling = step(promoting, sized(AFTER, 4), wanted=wanted, template=AFTER, rolling=True)
    assert "replaced pods" in why(rolling)


# Taken back


def test_exactly_what_was_is_put_back_on_what_was_touched() -> None:
    other = {"web": Resources(123, None, 99 * MIB, 256 * MIB)}
    taken = change(Phase.REVERTING, odd={"uid-web-1": other}, reason="harm")
    deeds = step(taken, sized(AFTER, 1, 2))
    assert {deed.pod.name: deed.sizes for deed in deeds if isinstance(deed, ResizePod)} == {
        "web-1": other,
        "web-2": {"web": SMALL},
    }
    assert all(isinstance(deed, ResizePod) and deed.priority is Priority.REVERT for deed in deeds)


@given(some_resources(), some_resources(), st.none() | st.integers(0, 8192 * MIB))
def test_reverting_lowers_memory_no_further_than_is_safe(
    before: Resources, after: Resources, need: int | None
) -> None:
    """It was put back to 256Mi while 400Mi were in use."""
    taken = change(Phase.REVERTING, before={"web": before}, after={"web": after}, template={"web": before})
    wanted = wish({"web": after}, needed_memory={} if need is None else {"web": need})
    deeds = step(taken, [pod(sizes={"web": after})], wanted=wanted, template={"web": before})
    for deed in deeds:
        if isinstance(deed, ResizePod):
            now, limit = after.memory_limit, deed.sizes["web"].memory_limit
            floor = now if need is None else min(now or 0, need)
            assert limit is None or limit >= min(floor or 0, now or 0)
    if not any(isinstance(deed, ResizePod) for deed in deeds):
        assert marks_of(deeds).reverted


def test_pods_are_resized_without_a_template_that_another_owns_where_they_need_no_new_ones() -> None:
    begins = begun(situation(pods=FIVE, on=workload(update="OnDelete", replicas=5)))
    assert (begins.way, begins.patches_template) == (UpdateMethod.IN_PLACE, True)
    promoted = msgspec.structs.replace(begins, phase=Phase.PROMOTING)
    assert step(promoted, FIVE, update="OnDelete") == [PatchTemplate(AFTER, take_ownership=False)]
    refused = LocalObservations(
        rejections={rejection_key("uid-web", AFTER): Rejection("kubectl owns it", NOW)}
    )
    noted = marks_of(step(promoted, FIVE, update="OnDelete", sightings=refused)).change
    assert noted is not None
    assert (noted.phase, noted.patches_template) == (Phase.PROMOTING, False)
    resized = step(noted, FIVE, update="OnDelete", sightings=refused)
    assert {type(deed) for deed in resized} == {ResizePod}


def test_revert_restores_the_template_before_the_pods() -> None:
    wanted = wish(allow_recreate=True, can_resize_in_place=False)
    begins = begun(situation(wanted, pods=FIVE, on=workload(update="OnDelete", replicas=5)))
    taken = msgspec.structs.replace(begins, phase=Phase.REVERTING, reason="harm")
    first = step(taken, sized(AFTER, 1, 2), wanted=wanted, template=AFTER, update="OnDelete")
    assert first == [PatchTemplate({"web": SMALL}, take_ownership=False)]
    then = step(taken, sized(AFTER, 1, 2), wanted=wanted, update="OnDelete")
    assert [type(deed) for deed in then] == [EvictPod]


def test_pods_that_are_evicted_to_be_as_before_go_one_after_the_other_and_the_unready_first() -> None:
    wanted = wish(allow_recreate=True, can_resize_in_place=False)
    begins = begun(situation(wanted, pods=FIVE, on=workload(update="OnDelete", replicas=5)))
    taken = msgspec.structs.replace(begins, phase=Phase.REVERTING, reason="harm")
    on = workload(marks=ChangeAnnotations(change=taken), update="OnDelete", replicas=5)
    *others, last = sized(AFTER, *range(5))
    assert "1 pod of the workload is missing" in why(next_actions(situation(wanted, pods=others, on=on)))
    fallen = msgspec.structs.replace(last, ready=False)
    assert next_actions(situation(wanted, pods=[*others, fallen], on=on)) == [
        EvictPod(fallen, Priority.REVERT)
    ]


def test_pods_that_are_evicted_to_be_as_before_do_not_wait_for_one_that_nobody_touched() -> None:
    wanted = wish(allow_recreate=True, can_resize_in_place=False)
    begins = begun(situation(wanted, pods=FIVE, on=workload(update="OnDelete", replicas=5)))
    taken = msgspec.structs.replace(begins, phase=Phase.REVERTING, reason="harm")
    on = workload(marks=ChangeAnnotations(change=taken), update="OnDelete", replicas=5)
    ailing = msgspec.structs.replace(FIVE[0], ready=False)
    changed = [pod(f"web-{n}", sizes=AFTER, created=NOW + n) for n in range(1, 5)]
    (evicted,) = next_actions(situation(wanted, pods=[ailing, *changed], on=on))
    assert isinstance(evicted, EvictPod)
    back = [*changed[:3], pod("web-4", created=NOW + 60, ready=False)]
    assert "1 pod of the workload is missing" in why(
        next_actions(situation(wanted, pods=[ailing, *back], on=on))
    )


def test_pods_that_the_user_gave_that_size_meanwhile_keep_it() -> None:
    taken = change(
        Phase.REVERTING, reason="somebody changed the sizes in the workload's template during the change"
    )
    done = marks_of(step(taken, sized(AFTER, *range(5)), template=AFTER))
    assert done.reverted


def test_cooldown_after_a_revert_grows() -> None:
    taken = change(Phase.REVERTING, reason="harm")
    once = marks_of(step(taken, FIVE)).reverted
    assert once
    assert (once.why, once.times, once.until) == ("harm", 1, NOW + DEADLINES.min_cooldown)
    on = workload(marks=ChangeAnnotations(change=taken, reverted=once), replicas=5)
    twice = marks_of(next_actions(situation(pods=FIVE, on=on))).reverted
    assert twice
    assert (twice.times, twice.until) == (2, NOW + 2 * DEADLINES.min_cooldown)
    waits = next_actions(situation(pods=FIVE, on=workload(marks=ChangeAnnotations(reverted=once))))
    assert waits == [
        Wait(once.until, "the last change was reverted: harm; next attempt at 2027-01-15T09:00:00Z")
    ]


@given(st.integers(1, 10_000))
def test_cooldown_is_never_longer_than_a_week(times: int) -> None:
    assert DEADLINES.min_cooldown <= compute_cooldown(times) <= DEADLINES.max_cooldown


def test_applied_sizes_stay_known_while_the_next_change_is_reverted() -> None:
    applied = AppliedSizes(id="x", at=NOW - 9999, sizes={"web": SMALL}, template={"web": SMALL})
    first = marks_of(
        next_actions(situation(pods=FIVE, on=workload(marks=ChangeAnnotations(applied=applied))))
    )
    assert first.applied == applied
    taken = ChangeAnnotations(change=change(Phase.REVERTING, reason="harm"), applied=applied)
    done = marks_of(next_actions(situation(pods=FIVE, on=workload(marks=taken))))
    assert (done.applied, done.change) == (applied, None)


# Tended


def applied_to(template: Sizes) -> ChangeAnnotations:
    return ChangeAnnotations(applied=AppliedSizes(id="x", at=NOW, sizes=AFTER, template=dict(template)))


def test_sync_pods_resizes_a_new_pod_to_the_applied_size() -> None:
    deeds = next_actions(
        situation(pods=sized(AFTER, 0, 1, 2, 3), on=workload(marks=applied_to({"web": SMALL})))
    )
    assert [deed.pod.name for deed in deeds if isinstance(deed, ResizePod)] == ["web-4"]


def test_sync_pods_leaves_an_excluded_container_as_it_is() -> None:
    """As a proxy that a mesh injects, of another size from its next version on."""
    older, newer = {"proxy": SMALL}, {"proxy": LARGE}
    pods = [pod(f"web-{n}", sizes={"web": SMALL} | older) for n in range(4)] + [
        pod("new", sizes={"web": SMALL} | newer)
    ]
    wanted = wish(
        excluded_containers=frozenset({"proxy"}), canary=Canary(percent=100), startup_boost=StartupBoost()
    )
    begins = begun(situation(wanted, pods=pods))
    assert (begins.before, begins.after, begins.odd) == ({"web": SMALL}, AFTER, {})
    on = workload(marks=ChangeAnnotations(change=begins), replicas=5)
    resized = next_actions(situation(wanted, pods=pods, on=on))
    assert [deed.sizes for deed in resized if isinstance(deed, ResizePod)] == [AFTER] * 5
    before_that = AppliedSizes(id="x", at=NOW, sizes=AFTER | older, template={"web": SMALL})
    starts = pod("starts", sizes={"web": SMALL} | newer, ready=False, created=NOW)
    tended = situation(wanted, pods=[starts], on=workload(marks=ChangeAnnotations(applied=before_that)))
    assert [deed.sizes for deed in next_actions(tended) if isinstance(deed, ResizePod)] == [AFTER | newer]


def test_pod_sync_resizes_the_injected_container_of_a_new_pod() -> None:
    had, wanted = {"web": SMALL, "proxy": SMALL}, {"web": LARGE, "proxy": LARGE}
    applied = AppliedSizes(id="x", at=NOW - 60, sizes=wanted, template={"web": SMALL})
    on = workload(marks=ChangeAnnotations(applied=applied), replicas=2)
    pods = [pod("web-0", sizes=wanted), pod("new", sizes=had, created=NOW)]
    resized = next_actions(situation(wish(wanted), pods=pods, on=on))
    assert [(deed.pod.name, deed.sizes) for deed in resized if isinstance(deed, ResizePod)] == [
        ("new", wanted)
    ]


@pytest.mark.parametrize("terms", [{"can_resize_in_place": False}, {"template": TemplateUpdate.ALWAYS}])
def test_sync_pods_does_not_size_injected_containers(terms: Any) -> None:
    """It would come of the size of whoever injects it, and the whole change be taken back for that."""
    injected = {"web": SMALL, "proxy": SMALL}
    pods = [pod(f"web-{n}", sizes=injected) for n in range(5)]
    both = wish({"web": LARGE, "proxy": LARGE}, allow_recreate=True, **terms)
    begins = begun(situation(both, pods=pods))
    assert (begins.way, begins.before, begins.after) == (UpdateMethod.ROLLOUT, {"web": SMALL}, AFTER)
    new = [pod(f"new-{n}", sizes={"web": LARGE, "proxy": SMALL}, created=NOW + 10) for n in range(5)]
    promoted = msgspec.structs.replace(begins, phase=Phase.PROMOTING)
    rolled = marks_of(step(promoted, new, wanted=both, template=AFTER, now=NOW + 60)).change
    assert rolled
    assert rolled.phase is Phase.VERIFYING
    only = wish({"proxy": LARGE}, allow_recreate=True, **terms)
    skipped = next_actions(situation(only, pods=pods))
    assert [deed.reason for deed in skipped if isinstance(deed, Skip)] == [
        (
            "only replaced pods could get the size, but a new pod gets the size of container proxy from whoever "
            "injects it, not from the workload's template; set the size where the container is injected"
        )
    ]
    done = AppliedSizes(id="x", at=NOW - 86_400, sizes={"web": SMALL}, template={"web": SMALL})
    assert (
        next_actions(
            situation(only, pods=pods, on=workload(marks=ChangeAnnotations(applied=done), replicas=5))
        )
        == []
    )


def test_rollout_leaves_injected_containers_out_of_the_template() -> None:
    injected, wanted = {"web": SMALL, "proxy": SMALL}, {"web": LARGE, "proxy": LARGE}
    pods = [pod(f"web-{n}", sizes=injected, created=NOW - 1000 + n) for n in range(5)]
    both = wish(wanted, allow_recreate=True)
    trying = begun(situation(both, pods=pods))
    never = PodResize(PENDING, "Infeasible", "capacity: 2")
    pods[4] = pod("web-4", sizes=wanted, applied=injected, resize=never, created=NOW - 996)
    rolled = marks_of(step(trying, pods, wanted=both)).change
    assert rolled
    assert (rolled.way, rolled.after) == (UpdateMethod.ROLLOUT, AFTER)
    only = begun(situation(wish({"proxy": LARGE}, allow_recreate=True), pods=pods[:4]))
    pods[3] = pod("web-3", sizes=injected | {"proxy": LARGE}, applied=injected, resize=never)
    turned_back(step(only, pods[:4], wanted=both))


def test_sync_pods_resizes_a_crashing_new_pod_when_it_runs() -> None:
    marks = applied_to({"web": SMALL})
    falling = pod(created=NOW + 10, ready=False, waiting="CrashLoopBackOff")
    assert writes(next_actions(situation(pods=[falling], on=workload(marks=marks)))) == []
    (resize,) = next_actions(situation(pods=[pod(created=NOW + 10, ready=False)], on=workload(marks=marks)))
    assert isinstance(resize, ResizePod)


def test_sync_pods_leaves_a_pod_that_another_resized() -> None:
    other = {"web": Resources(123, None, 99 * MIB, 256 * MIB)}
    pods = [*sized(AFTER, 0, 1, 2, 3)[:4], pod("web-4", sizes=other)]
    assert next_actions(situation(pods=pods, on=workload(marks=applied_to({"web": SMALL})))) == []


def test_sync_pods_keeps_a_limit_that_admission_added() -> None:
    """Where a LimitRange came since: the server removes none in place, and would refuse all of it."""
    filled = {"web": msgspec.structs.replace(SMALL, cpu_limit=2000)}
    came = pod(sizes=filled, created=NOW + 10)
    (resize,) = next_actions(situation(pods=[came], on=workload(marks=applied_to({"web": SMALL}))))
    assert isinstance(resize, ResizePod)
    assert resize.sizes == {"web": msgspec.structs.replace(LARGE, cpu_limit=2000)}


def test_applied_sizes_are_ignored_after_the_template_was_changed() -> None:
    new = {"web": Resources(200, None, 100 * MIB, 256 * MIB)}
    pods = [pod(f"web-{n}", sizes=new) for n in range(3)]
    on = workload(marks=applied_to({"web": SMALL}), template=new)
    assert "updateStrategy.minInterval" in why(next_actions(situation(pods=pods, on=on)))


# Written and read


@given(st.sampled_from(Phase), st.text(max_size=50), st.integers(0, 2**40))
def test_marks_read_as_they_were_written(phase: Phase, reason: str, until: int) -> None:
    marks = ChangeAnnotations(
        change=change(phase, reason=reason, odd={"x": {"web": LARGE}}),
        applied=AppliedSizes(id="x", at=until, sizes=AFTER, template={}),
        reverted=RevertRecord(id="y", at=1, why=reason, times=3, until=until),
    )
    assert decode_change_annotations(encode_change_annotations(marks, uid="u"), uid="u") == marks
    assert (
        decode_change_annotations(encode_change_annotations(marks, uid="u"), uid="v") == ChangeAnnotations()
    ), "of another object they say nothing"


# Clocks


def test_marks_of_a_clock_that_was_ahead_are_set_right_and_then_waited_for_as_long_as_was_meant() -> None:
    ahead = NOW + 10 * 365 * 86_400
    applied = AppliedSizes(id="x", at=ahead, sizes={"web": SMALL}, template={"web": SMALL}, until=ahead)
    reverted = RevertRecord(id="x", at=ahead, why="it hurt", times=1, until=ahead + DEADLINES.min_cooldown)
    on = workload(marks=ChangeAnnotations(applied=applied, reverted=reverted))
    right = marks_of(next_actions(situation(on=on)))
    assert right.applied == msgspec.structs.replace(applied, at=NOW, until=NOW)
    assert right.reverted == msgspec.structs.replace(reverted, at=NOW, until=NOW + DEADLINES.min_cooldown)
    assert "it hurt" in why(next_actions(situation(on=workload(marks=right))))


def test_change_started_by_a_clock_ahead_ends() -> None:
    began = change(Phase.VERIFYING, settled=NOW + 86_400)
    right = marks_of(step(began, sized(AFTER, *range(5)))).change
    assert right == msgspec.structs.replace(began, settled=NOW)
    deeds = step(right, sized(AFTER, *range(5)), now=NOW + OBSERVATION)
    assert marks_of(deeds).applied


def test_evictions_do_not_wait_for_a_clock_that_was_ahead() -> None:
    """Pods that come count as made by the change from a time on; written by that clock, none did for a day."""
    evicting = change(Phase.PROMOTING, way=UpdateMethod.RECREATE, patches_template=True, renews=NOW + 86_400)
    terms: dict[str, Any] = {
        "wanted": wish(allow_recreate=True, can_resize_in_place=False),
        "template": AFTER,
        "update": "OnDelete",
    }
    odd = [*one_by_one(5, created=NOW + 30), pod("odd", created=NOW + 40)]
    right = marks_of(step(evicting, odd, now=NOW + 20, **terms)).change
    assert right
    assert right.renews == NOW + 20
    taken = turned_back(step(right, odd, now=NOW + 60, **terms))
    assert taken.reason.startswith("new pod odd has another size than the template")


@given(st.integers(301, 10**9), st.data())
def test_clamp_future_times_leaves_no_time_in_the_future(ahead: int, data: st.DataObject) -> None:
    """Whichever field of it is a time: each is waited for somewhere."""
    times = ("started", "since", "settled", "renews", "gave_up")
    chosen = data.draw(st.sets(st.sampled_from(times), min_size=1))
    began = change(Phase.PROMOTING, **dict.fromkeys(chosen, NOW + ahead))
    right = marks_of(step(began, FIVE)).change
    assert all(getattr(right, name) <= NOW for name in times)


def test_change_tolerates_replicas_that_differ_by_a_second() -> None:
    applied = AppliedSizes(id="x", at=NOW + 2, sizes={"web": SMALL}, template={"web": SMALL})
    assert "minInterval" in why(
        next_actions(situation(on=workload(marks=ChangeAnnotations(applied=applied))))
    )
