"""The correctness properties of the OptiPod seed that are about applying, each under its own title."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
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
    warnings,
    workload,
    writes,
)
from actuation.world import KEY, World, resources, run
from trimtab.actuation.actions import EvictPod, PatchTemplate, Wait
from trimtab.actuation.change_annotations import AppliedSizes, ChangeAnnotations, Phase, UpdateMethod
from trimtab.actuation.deadlines import DEADLINES
from trimtab.actuation.decide.observation import DesiredChange, Observation
from trimtab.actuation.decide.transitions import next_actions
from trimtab.actuation.executor import UNKNOWN_REQUESTER, ChangeExecutor, Requester
from trimtab.actuation.hold import Hold
from trimtab.actuation.resources import SizeLimits, Sizes, format_sizes, limit_memory_decrease
from trimtab.api.duration import Duration
from trimtab.api.optimizationpolicy import Canary, TemplateUpdate, WorkloadState
from trimtab.kube.errors import Forbidden, Invalid, NotFound, Status
from trimtab.kube.kinds.pod_requests import qos_class
from trimtab.kube.kinds.pods import ContainerTermination, Pod, Resources
from trimtab.kube.rest.resources import CRON_JOBS, DAEMON_SETS, DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS

QUICK = Canary(percent=50, observation=Duration.from_seconds(30), evidence_timeout=Duration.from_seconds(30))
PLENTY = {"web": 0}

requests = st.builds(resources, cpu=st.integers(10, 4000), memory=st.integers(32, 4096))
kinds = st.sampled_from([DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS, REPLICA_SETS])


def drive(
    world: World, wanted: DesiredChange, *, steps: int = 40, requester: Requester = UNKNOWN_REQUESTER
) -> None:
    """Reconcile until there is nothing more to do."""
    actuator = ChangeExecutor(world, world.records, may_write=lambda: True)
    for _ in range(steps):
        report = run(actuator.reconcile(KEY, wanted, now=world.now, requester=requester))
        assert report
        if report.state in {WorkloadState.APPLIED, WorkloadState.REVERTED}:
            return
        world.pass_time(30)
    raise AssertionError(f"it stays at {report}")


@given(old=requests, new=requests, replicas=st.integers(1, 4))
def test_property_2_sufficient_data_triggers_updates(old: Resources, new: Resources, replicas: int) -> None:
    world = World(template={"web": old}, replicas=replicas)
    drive(world, desired_change({"web": new}, needed_memory=PLENTY, canary=QUICK))
    assert world.sizes == {(("web", new),)}


@given(old=some_resources(), cpu=st.integers(10, 4000), memory=st.integers(32, 4096))
def test_property_3_updates_preserve_limits(old: Resources, cpu: int, memory: int) -> None:
    """A recommendation for requests alone names limits as they are, and as they are they stay."""
    new = Resources(
        min(cpu, (old.cpu_limit or cpu + 1) - 1),
        old.cpu_limit,
        min(memory * MIB, (old.memory_limit or 2**62) - 1),
        old.memory_limit,
    )
    world = World(template={"web": old}, replicas=2)
    drive(world, desired_change({"web": new}, needed_memory=PLENTY, canary=QUICK))
    ((_, given_to),) = next(iter(world.sizes))
    assert (given_to.cpu_limit, given_to.memory_limit) == (old.cpu_limit, old.memory_limit)


@example(old=Resources(10, None, 65 * MIB, None), new=Resources(10, None, 32 * MIB, 64 * MIB), need=None).via(
    "a limit is added, and the request above it stays"
)
@given(old=some_resources(), new=some_resources(), need=st.none() | st.integers(0, 8192 * MIB))
def test_property_5_memory_decrease_safety(old: Resources, new: Resources, need: int | None) -> None:
    safe = limit_memory_decrease(old, new, need=need)
    for now, wanted, given_to in (
        (old.memory_request, new.memory_request, safe.memory_request),
        (old.memory_limit, new.memory_limit, safe.memory_limit),
    ):
        if wanted is None or (now is not None and wanted >= now):
            assert given_to == wanted
        elif now is None:
            # A first limit is less than the whole node: none is set where the need is unknown.
            assert given_to is None if need is None else given_to is not None and given_to >= wanted
        elif need is None:
            assert given_to == now
        else:
            assert given_to is not None
            assert wanted <= given_to <= now
            assert given_to == now or given_to >= need
    assert (safe.cpu_request, safe.cpu_limit) == (new.cpu_request, new.cpu_limit)
    if safe.memory_limit is not None:
        assert (safe.memory_request or 0) <= safe.memory_limit
        assert old.memory_limit is not None or safe.memory_limit >= (need or 0)


class NeedyWorld(World):
    """A world that notes the resizes that take memory which containers have in effect and need."""

    def __init__(self, size: Resources, *, need: int) -> None:
        super().__init__(template={"web": size}, replicas=2)
        self.need = need
        self.taken: list[int] = []

    async def resize(self, pod: Pod, sizes: Sizes) -> Pod:
        in_effect = self.pods_by_name[pod.name].applied["web"].memory_limit or 0
        wanted = sizes["web"].memory_limit or 0
        if wanted < self.need <= in_effect:
            self.taken.append(wanted)
        return await super().resize(pod, sizes)

    def _check_written_down(self, sizes: Sizes) -> None:
        """Accept any size: a recorded one that is above the limits is given only within them."""


memory_limits = st.integers(128, 4096).map(lambda amount: amount * MIB)


@given(
    old=memory_limits,
    new=memory_limits,
    need=memory_limits,
    caps=st.lists(st.none() | memory_limits, min_size=10, max_size=10),
    crash_at=st.integers(0, 30),
)
@example(
    old=1024 * MIB, new=4096 * MIB, need=3072 * MIB, caps=[None, 2048 * MIB] + 8 * [2048 * MIB], crash_at=30
)
def test_lowered_limits_take_no_memory_that_pods_need(
    old: int, new: int, need: int, caps: list[int | None], crash_at: int
) -> None:
    """Below its limit, the size of a change was taken for one that is not in effect, and the need was not asked for."""
    before, after = (Resources(500, None, amount, amount) for amount in (old, new))
    world = NeedyWorld(before, need=need)
    wanted = desired_change({"web": after}, needed_memory={"web": need}, canary=QUICK)
    actuator = ChangeExecutor(world, world.records, may_write=lambda: True)
    for step in range(30):
        if step == crash_at:
            for live in world.pods_by_name.values():
                live.exits["web"] = ContainerTermination("Error", 1, world.now)
        limited = replace(wanted, size_limits=SizeLimits(memory=caps[step // 3]))
        run(actuator.reconcile(KEY, limited, now=world.now))
        world.pass_time(10)
    assert not world.taken


@given(old=some_resources(), need=st.integers(0, 8192 * MIB))
def test_safe_memory_is_a_readable_amount(old: Resources, need: int) -> None:
    """It was the need to the byte: 576716801."""
    safe = limit_memory_decrease(old, Resources(10, None, MIB, 2 * MIB), need=need)
    for amount in (safe.memory_request, safe.memory_limit):
        assert amount is not None
        assert amount % MIB == 0


def test_format_sizes_writes_readable_amounts() -> None:
    odd = Resources(1500, 2000, 576716801, 500_000_000)
    assert format_sizes({"web": odd}) == "web: cpu 1500m (limit 2), memory 550.0Mi (limit 476.8Mi)"
    assert format_sizes({"web": Resources(None, None, 1 << 30, None), "log": Resources()}) == (
        "web: memory 1Gi; log: no requests or limits"
    )


@given(old=requests, new=requests, kind=kinds, obstacle=st.sampled_from(["cluster", "policy", "container"]))
def test_property_6_fallback_strategy_respect(
    old: Resources, new: Resources, kind: object, obstacle: str
) -> None:
    terms = {
        "cluster": {"can_resize_in_place": False},
        "policy": {"allow_in_place_resize": False},
        "container": {},
    }[obstacle]
    pods = [pod(sizes={"web": old}, restarts_when_resized=obstacle == "container")]
    on = workload(resource=kind, template={"web": old})  # type: ignore[arg-type]
    actions = next_actions(
        observation(desired_change({"web": new}, needed_memory=PLENTY, **terms), pods=pods, on=on)
    )
    if old == new:
        assert actions == []
    else:
        assert "allowRecreate" in wait_reason(actions)
        assert warnings(actions) == [wait_reason(actions)]
        allowed = observation(
            desired_change({"web": new}, needed_memory=PLENTY, allow_recreate=True, **terms), pods=pods, on=on
        )
        assert start_change(allowed).after == {"web": new}


@st.composite
def any_situation(draw: st.DrawFn, *, blocked_reason: str) -> Observation:
    """A workload in any state, also in the middle of a change."""
    old, new = draw(requests), draw(requests)
    replicas = draw(st.integers(1, 4))
    pods = [
        pod(f"web-{n}", sizes={"web": draw(st.sampled_from([old, new]))}, ready=draw(st.booleans()))
        for n in range(replicas)
    ]
    change_annotations = ChangeAnnotations()
    if draw(st.booleans()):
        start = observation(
            desired_change({"web": new}, needed_memory=PLENTY),
            pods=[pod(sizes={"web": old})],
            on=workload(template={"web": old}),
        )
        if old != new:
            change_annotations = ChangeAnnotations(change=start_change(start))
    elif draw(st.booleans()):
        change_annotations = ChangeAnnotations(
            applied=AppliedSizes(id="x", at=NOW - 9999, sizes={"web": new}, template={"web": old})
        )
    on = workload(template={"web": old}, change_annotations=change_annotations, replicas=replicas)
    return observation(
        desired_change({"web": new}, needed_memory=PLENTY, blocked_reason=blocked_reason), pods=pods, on=on
    )


@given(any_situation(blocked_reason="the policy's mode is Recommend"))
def test_property_8_recommend_mode_prevents_modifications(case: Observation) -> None:
    assert "Recommend" in wait_reason(next_actions(case))


@given(any_situation(blocked_reason="a global dry-run is on"))
def test_property_29_global_dry_run_mode(case: Observation) -> None:
    assert "dry-run" in wait_reason(next_actions(case))


@given(old=requests, new=requests, interval=st.integers(0, 7200), ago=st.integers(0, 7200))
def test_property_17_auto_mode_applies_changes(
    old: Resources, new: Resources, interval: int, ago: int
) -> None:
    """Periodically: a change begins as soon as the interval allows, and no sooner."""
    applied = AppliedSizes(id="x", at=NOW - ago, sizes={"web": old}, template={"web": old})
    case = observation(
        desired_change({"web": new}, needed_memory=PLENTY, min_interval=Duration.from_seconds(interval)),
        pods=[pod(sizes={"web": old})],
        on=workload(template={"web": old}, change_annotations=ChangeAnnotations(applied=applied)),
    )
    actions = next_actions(case)
    if old == new:
        assert actions == []
    elif ago < interval:
        assert actions == [Wait(applied.at + interval, wait_reason(actions))]
    else:
        assert start_change(case).after == {"web": new}


@given(old=requests, new=requests, recreate=st.booleans(), kind=kinds)
def test_property_21_in_place_resize_preference(
    *, old: Resources, new: Resources, recreate: bool, kind: object
) -> None:
    case = observation(
        desired_change({"web": new}, needed_memory=PLENTY, allow_recreate=recreate),
        pods=[pod(sizes={"web": old})],
        on=workload(resource=kind, template={"web": old}),  # type: ignore[arg-type]
    )
    assert old == new or start_change(case).method is UpdateMethod.IN_PLACE


@given(old=requests, new=requests, recreate=st.booleans(), on_delete=st.booleans())
def test_property_22_recreate_strategy_availability(
    *, old: Resources, new: Resources, recreate: bool, on_delete: bool
) -> None:
    case = observation(
        desired_change(
            {"web": new}, needed_memory=PLENTY, allow_recreate=recreate, can_resize_in_place=False
        ),
        pods=[pod(sizes={"web": old})],
        on=workload(template={"web": old}, update="OnDelete" if on_delete else "RollingUpdate"),
    )
    if old == new:
        return
    if recreate:
        assert start_change(case).method is (UpdateMethod.RECREATE if on_delete else UpdateMethod.ROLLOUT)
    else:
        assert "this cluster cannot resize pods in place" in wait_reason(next_actions(case))


@given(old=requests, new=requests, on_delete=st.booleans(), replicas=st.integers(1, 4))
def test_change_recreates_all_pods_with_the_new_size_if_allowed(
    *, old: Resources, new: Resources, on_delete: bool, replicas: int
) -> None:
    update = "OnDelete" if on_delete else "RollingUpdate"
    world = World(template={"web": old}, replicas=replicas, update=update)
    drive(
        world,
        desired_change(
            {"web": new}, needed_memory=PLENTY, canary=QUICK, allow_recreate=True, can_resize_in_place=False
        ),
    )
    assert world.sizes == {(("web", new),)}
    assert world.template == {"web": new}
    assert "resize" not in world.written


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "allow_in_place_resize": st.just(False),
            "can_resize_in_place": st.just(False),
            "template": st.sampled_from([TemplateUpdate.NEVER, TemplateUpdate.AS_NEEDED]),
        },
    ),
    st.sampled_from(["rolling", "unready", "foreign", "guaranteed", "fine"]),
)
def test_property_24_skip_reason_recording(terms: dict[str, Any], matter: str) -> None:
    """Whatever keeps a change from beginning, there is a reason for it."""
    on = workload(
        rolling=matter == "rolling", annotations={"trimtab.io/change": "?"} if matter == "foreign" else None
    )
    equal = Resources(100, 100, 64 * MIB, 64 * MIB)
    size = equal if matter == "guaranteed" else SMALL
    actions = next_actions(
        observation(
            desired_change(**terms), pods=[pod(sizes={"web": size}, ready=matter != "unready")], on=on
        )
    )
    if not writes(actions):
        assert len(wait_reason(actions)) > 10


REFUSALS = {
    403: Forbidden(Status(message='pods "web-0" is forbidden: exceeded quota: small', code=403)),
    422: Invalid(Status(message="admission webhook said: not on a Friday", code=422)),
}


@pytest.mark.parametrize("code", REFUSALS)
@given(replicas=st.integers(1, 4), new=requests.filter(lambda each: each != SMALL))
def test_property_26_failure_event_creation(code: int, replicas: int, new: Resources) -> None:
    """The Event quotes the server, nothing is retried, and the started change is reverted."""
    world = World(template={"web": SMALL}, replicas=replicas)

    def refuse(what: str) -> None:
        if what == "before resize":
            raise REFUSALS[code]

    world.intercept_write = refuse
    drive(world, desired_change({"web": new}, needed_memory=PLENTY, canary=QUICK), steps=6)
    words = REFUSALS[code].message
    assert any(kind == "Warning" and words in message for kind, _, message in world.events)
    assert world.change_annotations.reverted
    assert words in world.change_annotations.reverted.why
    assert world.sizes == {(("web", SMALL),)}
    if code == 403:
        assert "raise the quota" in world.change_annotations.reverted.why


def test_change_retries_a_server_without_resize_later() -> None:
    """While API servers are upgraded one after the other, one of them has the subresource and another has not."""
    world, asked = World(template={"web": SMALL}, replicas=1), []

    def fail_as_not_found(what: str) -> None:
        if what == "before resize":
            asked.append(what)
            raise NotFound(Status(message="the server could not find the requested resource", code=404))

    world.intercept_write = fail_as_not_found
    report = run(
        ChangeExecutor(world, world.records, may_write=lambda: True).reconcile(
            KEY, desired_change(needed_memory=PLENTY), now=world.now
        )
    )
    assert len(asked) == 1
    assert report
    assert (report.state, report.requeue_at) == (WorkloadState.APPLYING, world.now + DEADLINES.poll)
    assert "could not find" in report.reason


@pytest.mark.parametrize("update", ["RollingUpdate", "OnDelete"])
@pytest.mark.parametrize("after", [0, 30, 90])
def test_change_does_not_fight_for_a_template_that_others_restore(update: str, after: int) -> None:
    """A GitOps tool restores the field, with any owner, at once or while pods are replaced."""
    world = World(template={"web": SMALL}, replicas=3, update=update)
    due: list[int] = []

    def note(what: str) -> None:
        if what == "after patch_template":
            due.append(world.now + after)

    world.intercept_write = note
    terms: dict[str, Any] = {"allow_recreate": True, "can_resize_in_place": False, "take_ownership": True}
    actuator, wanted = (
        ChangeExecutor(world, world.records, may_write=lambda: True),
        desired_change(needed_memory=PLENTY, **terms),
    )
    for _ in range(40):
        run(actuator.reconcile(KEY, wanted, now=world.now))
        if due and world.now >= due[-1]:
            world.template = {"web": SMALL}
        world.pass_time(15)
    assert world.written.count("patch_template") == 1, "within ten minutes"
    assert world.change_annotations.reverted
    assert (
        world.change_annotations.reverted.times,
        world.change_annotations.reverted.until > NOW + 3600,
    ) == (1, True)
    assert "such as a GitOps tool" in world.change_annotations.reverted.why
    ((kind, message),) = [(kind, text) for kind, reason, text in world.events if reason == "Reverted"]
    assert kind == "Warning"
    assert message.startswith("Deployment web: reverted from ")
    assert message.endswith(f", because {world.change_annotations.reverted.why}")


def test_change_repeats_a_restored_template_once_a_day() -> None:
    world = World(template={"web": SMALL}, replicas=2)
    terms: dict[str, Any] = {"allow_recreate": True, "can_resize_in_place": False, "take_ownership": True}
    wanted = desired_change(
        needed_memory=PLENTY, canary=QUICK, min_interval=Duration.from_seconds(60), **terms
    )
    actuator = ChangeExecutor(world, world.records, may_write=lambda: True)
    drive(world, wanted)
    world.template = {"web": SMALL}
    world.pass_time(30)
    for _ in range(4):
        world.pass_time(3600)
        report = run(actuator.reconcile(KEY, wanted, now=world.now))
        assert report
        assert (report.state, "such as a GitOps tool" in report.reason) == (WorkloadState.PENDING, True)
    assert world.written.count("patch_template") == 1
    held = Hold(who="somebody", why="", sizes={"web": LARGE}).apply_to(wanted)
    at_once = start_change(
        observation(held, pods=run(world.list_pods()), on=run(world.get_workload(KEY)), now=world.now)
    )
    assert at_once.after == {"web": LARGE}
    relief = run(actuator.reconcile(KEY, replace(wanted, is_urgent=True), now=world.now))
    assert relief
    assert relief.state is WorkloadState.APPLYING, "more memory after a kill does not wait"
    world.template = {"web": resources(150, 64)}
    other = run(
        ChangeExecutor(world, world.records, may_write=lambda: True).reconcile(KEY, wanted, now=world.now)
    )
    assert other
    assert "GitOps" not in other.reason, "that is somebody's own change"


def test_change_resizes_pods_although_a_template_is_restored() -> None:
    world = World(template={"web": SMALL}, replicas=2, update="OnDelete")
    terms: dict[str, Any] = {
        "canary": QUICK,
        "take_ownership": True,
        "min_interval": Duration.from_seconds(60),
    }
    drive(world, desired_change(needed_memory=PLENTY, **terms))
    world.template = {"web": SMALL}
    world.pass_time(3600)
    larger = resources(900, 512)
    drive(world, desired_change({"web": larger}, needed_memory=PLENTY, **terms))
    assert world.sizes == {(("web", larger),)}


def test_change_resizes_pods_in_place_although_others_restore_the_template() -> None:
    world = World(template={"web": SMALL}, replicas=2, update="OnDelete")

    def set_back(what: str) -> None:
        if what == "after patch_template":
            world.template = {"web": SMALL}

    world.intercept_write = set_back
    drive(world, desired_change(needed_memory=PLENTY, canary=QUICK, take_ownership=True))
    assert world.written.count("patch_template") == 1
    assert world.change_annotations.applied
    assert world.sizes == {(("web", LARGE),)}


def test_rejected_template_is_retried_although_the_clock_is_set_back_by_a_day() -> None:
    world, wanted = (
        World(template={"web": SMALL}, replicas=1),
        desired_change(needed_memory=PLENTY, canary=QUICK),
    )
    drive(world, wanted)
    world.replicas += 1
    world.add_pod()
    actuator = ChangeExecutor(world, world.records, may_write=lambda: True)

    def refuse(what: str) -> None:
        if what == "before resize":
            raise REFUSALS[403]

    world.intercept_write = refuse
    run(actuator.reconcile(KEY, wanted, now=world.now))
    world.intercept_write = lambda _: None
    run(actuator.reconcile(KEY, wanted, now=world.now - 86_400))
    world.pass_time(1)
    assert world.sizes == {(("web", LARGE),)}


@given(replicas=st.integers(1, 4), new=requests.filter(lambda each: each != SMALL))
def test_property_28_rbac_respect(replicas: int, new: Resources) -> None:
    """Without the right to write, nothing is touched, and the report says whose right is missing."""
    world = World(template={"web": SMALL}, replicas=replicas)
    asked: list[str] = []

    def forbid(what: str) -> None:
        asked.append(what)
        raise Forbidden(Status(message='User "trimtab" cannot patch resource "deployments"', code=403))

    world.intercept_write = forbid
    actuator = ChangeExecutor(world, world.records, may_write=lambda: True)
    report = run(actuator.reconcile(KEY, desired_change({"web": new}, needed_memory=PLENTY), now=world.now))
    assert report
    assert report.state is WorkloadState.FAILED
    assert "cannot patch" in report.reason
    assert asked == ["before annotate"]
    assert world.annotations == {}
    assert [event[1] for event in world.events] == ["Refused"]


@given(old=requests, new=requests, replicas=st.integers(1, 5))
def test_property_32_api_call_efficiency(old: Resources, new: Resources, replicas: int) -> None:
    """It sends one write a pod, a handful for the annotations, and none when nothing changes."""
    world = World(template={"web": old}, replicas=replicas)
    wanted = desired_change({"web": new}, needed_memory=PLENTY, canary=QUICK)
    drive(world, wanted)
    if old == new:
        assert world.written == []
        return
    assert world.written.count("resize") == replicas
    assert world.written.count("annotate") <= 5
    so_far = len(world.written)
    drive(world, wanted, steps=5)
    assert len(world.written) == so_far


@given(old=some_resources(), new=some_resources())
def test_change_never_alters_the_qos_class_by_accident(old: Resources, new: Resources) -> None:
    case = observation(
        desired_change({"web": new}, needed_memory=PLENTY, allow_recreate=True),
        pods=[pod(sizes={"web": old})],
        on=workload(template={"web": old}),
    )
    for action in writes(next_actions(case)):
        change = action.annotations.change  # type: ignore[union-attr]
        assert change
        assert qos_class(change.before.values()) == qos_class(change.after.values())


@given(old=requests, new=requests.filter(lambda each: each != SMALL))
def test_change_sizes_a_cron_job_by_its_template_alone(old: Resources, new: Resources) -> None:
    case = observation(
        desired_change({"web": new}, needed_memory=PLENTY),
        pods=[],
        on=workload(resource=CRON_JOBS, template={"web": old}, update=""),
    )
    if old == new:
        return
    change = start_change(case)
    assert (change.method, change.phase) == (UpdateMethod.TEMPLATE, Phase.PROMOTING)
    on = workload(
        resource=CRON_JOBS,
        template={"web": old},
        change_annotations=ChangeAnnotations(change=change),
        update="",
    )
    (patch,) = next_actions(observation(case.desired, pods=[], on=on))
    assert patch == PatchTemplate({"web": new}, take_ownership=False)
    never = desired_change({"web": new}, needed_memory=PLENTY, template=TemplateUpdate.NEVER)
    assert "Never" in wait_reason(next_actions(observation(never, pods=[], on=case.workload)))


@pytest.mark.parametrize(
    ("halted", "said"), [({"paused": True}, "paused"), ({"partition": 2}, "partition 2")]
)
def test_rollout_that_would_not_reach_all_pods_is_not_started(halted: Any, said: str) -> None:
    on = workload(resource=STATEFUL_SETS, **halted)
    elsewhere = desired_change(allow_recreate=True, can_resize_in_place=False)
    assert said in wait_reason(next_actions(observation(elsewhere, on=on)))
    always = desired_change(allow_recreate=True, template=TemplateUpdate.ALWAYS)
    begins = start_change(observation(always, on=on))
    assert (begins.method, begins.patches_template) == (UpdateMethod.IN_PLACE, False)


def test_change_evicts_no_pod_while_one_is_missing() -> None:
    change = start_change(
        observation(
            desired_change(allow_recreate=True, can_resize_in_place=False), on=workload(update="OnDelete")
        )
    )
    on = workload(
        update="OnDelete",
        template={"web": LARGE},
        change_annotations=ChangeAnnotations(change=change),
        replicas=2,
    )
    wanted = desired_change(allow_recreate=True, can_resize_in_place=False)
    both = next_actions(observation(wanted, pods=[pod(), pod("web-1")], on=on))
    assert [type(action) for action in both] == [EvictPod]
    assert "not in effect yet" in wait_reason(next_actions(observation(wanted, pods=[pod()], on=on)))


def test_executor_names_the_workload_and_who_asked_in_events() -> None:
    world = World(template={"web": SMALL}, replicas=1)
    wanted = desired_change({"web": LARGE}, needed_memory=PLENTY, canary=QUICK)
    drive(world, wanted, requester=Requester(policy="shop/all"))
    messages = {reason: message for _, reason, message in world.events}
    assert set(messages) == {"Resizing", "Resized"}
    assert all(message.startswith("Deployment web: resi") for message in messages.values())
    assert messages["Resizing"].endswith(", all pods at once; requested by policy shop/all")
    assert messages["Resized"].endswith("; the change is complete")


def test_executor_rechecks_temporary_states_soon() -> None:
    (wait,) = next_actions(observation(on=workload(rolling=True)))
    assert wait == Wait(
        NOW + DEADLINES.recheck, "a rollout of the workload is in progress; Trimtab waits for its end"
    )
