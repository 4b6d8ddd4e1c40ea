"""Every wait of a change, and of a revert, ends: whatever breaks, at any moment, and stays broken for ever.

Other tests let trouble pass and ask for one true state. Here it never passes, and what is asked for is an end: no change
stands for longer than a day, and more memory after an OOM kill is given, or tried again, within the hour.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from actuation.builders import MIB, NOW, desired_change, observation, workload
from actuation.builders import start_change as first_change
from actuation.test_crashes import CANARY, NEW, OLD, POISON, WAYS
from actuation.world import KEY, World, run
from harness.examples import limit_examples
from trimtab.actuation.actions import EmitEvent, PatchTemplate
from trimtab.actuation.change_annotations import ChangeAnnotations, Phase
from trimtab.actuation.deadlines import DEADLINES
from trimtab.actuation.decide.transitions import next_actions
from trimtab.actuation.executor import ChangeExecutor, ReconcileResult
from trimtab.actuation.resources import Sizes
from trimtab.api.duration import Duration
from trimtab.api.optimizationpolicy import MaintenanceWindow, TemplateUpdate
from trimtab.kube.errors import DisruptionBlocked, Forbidden, InternalError, Invalid, Status
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.rest.resources import CRON_JOBS

STEP = 30
LONG_STEP = 600
LONGEST = 16 * 3600
"""Seconds that the longest change of five pods may take, when each of its waits takes as long as it may."""
LESS = {"web": Resources(50, None, 64 * MIB, 128 * MIB)}
MORE = {"web": Resources(100, None, 256 * MIB, 256 * MIB)}
NEVER = (MaintenanceWindow(start="00:00", end="01:00", time_zone="No/Where"),)


def fails(writes: str, error: Any) -> Callable[[World], None]:
    """Every write of this kind fails from now on."""

    def begin(world: World) -> None:
        before = world.intercept_write

        def fail(what: str) -> None:
            before(what)
            if what == f"before {writes}":
                raise error(Status(message=f"{writes} fails", code=error.code))

        world.intercept_write = fail

    return begin


def sets(**facts: Any) -> Callable[[World], None]:
    def begin(world: World) -> None:
        for name, value in facts.items():
            setattr(world, name, value)

    return begin


def lose_pods(world: World) -> None:
    """A quota lets none of them come back."""
    world.pods_by_name.clear()


def add_pod(world: World) -> None:
    world.replicas += 1
    world.add_pod()


def full(reason: str) -> Callable[[World], None]:
    def begin(world: World) -> None:
        world.full = reason

    return begin


TROUBLES: dict[str, Callable[[World], None]] = {
    "nodes have no capacity": full("Deferred"),
    "nodes never have capacity": full("Infeasible"),
    "no kubelet resizes": sets(resizable=False),
    "no node for new pods": sets(fitting_size={"web": Resources(1, 1, 1, 1)}),
    "only small pods find a node": sets(fitting_size=OLD | LESS),
    "Kubernetes 1.33": sets(keeps_memory_limits=True),
    "paused": sets(paused=True),
    "pods crash": sets(crash_loops=True, needed_memory=10**12),
    "pods are killed": sets(needed_memory=10**12),
    "clocks of nodes are ahead": sets(clock_ahead=7200, needed_memory=10**12),
    "no disruption is allowed": fails("evict", DisruptionBlocked),
    "evictions fail": fails("evict", InternalError),
    "resizes fail": fails("resize", InternalError),
    "resizes are refused": fails("resize", Invalid),
    "resizes are forbidden": fails("resize", Forbidden),
    "the template is refused": fails("patch_template", Forbidden),
    "the template fails": fails("patch_template", InternalError),
    "no pod comes back": lose_pods,
    "a pod is added": add_pod,
}


class TimedTrouble(NamedTuple):
    trouble: str
    at: int
    """The step at which it begins."""


timed_troubles = st.builds(TimedTrouble, st.sampled_from(sorted(TROUBLES)), st.integers(0, 12))


class WorkloadRun:
    """Runs a workload over days and records the duration of each change."""

    def __init__(self, way: str, replicas: int, wanted: Sizes, **terms: Any) -> None:
        self.terms = WAYS[way]
        self.world = World(
            template=self.terms.template,
            replicas=replicas,
            resource=self.terms.resource,
            update=self.terms.update,
        )
        if self.terms.template != OLD:
            self.world.apply_size_earlier(OLD)
        policy: dict[str, Any] = dict(self.terms.policy) | terms
        self.wanted = desired_change(
            wanted, needed_memory={"web": 0}, canary=CANARY, min_interval=Duration(0), **policy
        )
        self.restart()
        self.began: dict[str, int] = {}
        self.longest: dict[str, int] = {}
        self.report: ReconcileResult | None = None

    def restart(self) -> None:
        """Go on with a new process, which has only the annotations."""
        self.actuator = ChangeExecutor(self.world, self.world.records, may_write=lambda: True)

    def step(self, seconds: int) -> None:
        self.report = run(self.actuator.reconcile(KEY, self.wanted, now=self.world.now))
        if change := self.world.change_annotations.change:
            began = self.began.setdefault(change.id, self.world.now)
            self.longest[change.id] = self.world.now - began
        self.world.pass_time(seconds)

    def describe(self) -> str:
        return f"{self.world.change_annotations.change} {self.report}"


@settings(max_examples=limit_examples(150), suppress_health_check=[HealthCheck.too_slow])
@given(
    way=st.sampled_from(sorted(WAYS)),
    replicas=st.integers(1, 4),
    troubles=st.lists(timed_troubles, min_size=1, max_size=4),
    poisoned=st.booleans(),
    urgent_from=st.none() | st.integers(0, 20),
    never_open_from=st.none() | st.integers(1, 12),
    limits_stay=st.booleans(),
    restart_at=st.none() | st.integers(1, 60),
)
@example(
    way="InPlace",
    replicas=4,
    troubles=[TimedTrouble("nodes have no capacity", 9), TimedTrouble("pods are killed", 9)],
    poisoned=False,
    urgent_from=12,
    never_open_from=None,
    limits_stay=False,
    restart_at=None,
).via("issue 20, number 5")
def test_change_ends_whatever_stays_broken(
    *,
    way: str,
    replicas: int,
    troubles: list[TimedTrouble],
    poisoned: bool,
    urgent_from: int | None,
    never_open_from: int | None,
    limits_stay: bool,
    restart_at: int | None,
) -> None:
    workload_run = WorkloadRun(way, replicas, POISON if poisoned else NEW, memory_limits_fixed=limits_stay)
    for number in range(30 + 20 * 6):
        for each in troubles:
            if each.at == number:
                TROUBLES[each.trouble](workload_run.world)
        if number == restart_at:
            workload_run.restart()
        if number == urgent_from:
            workload_run.wanted = replace(workload_run.wanted, sizes=MORE, is_urgent=True)
        if number == never_open_from:
            strategy = workload_run.wanted.strategy.model_copy(update={"windows": NEVER})
            workload_run.wanted = replace(workload_run.wanted, strategy=strategy)
        workload_run.step(STEP if number < 30 else LONG_STEP)
        assert all(seconds < LONGEST for seconds in workload_run.longest.values()), workload_run.describe()


def test_change_of_an_unwritable_cron_job_template_ends() -> None:
    """A server that fails each time rejects nothing, so that only a deadline ends the change."""
    begins = first_change(
        observation(
            desired_change(needed_memory={"web": 0}), pods=[], on=workload(resource=CRON_JOBS, update="")
        )
    )
    on = workload(resource=CRON_JOBS, update="", change_annotations=ChangeAnnotations(change=begins))
    soon, late = (
        next_actions(
            observation(
                desired_change(needed_memory={"web": 0}),
                pods=[],
                on=on,
                now=NOW + DEADLINES.never_resized + each,
            )
        )
        for each in (0, 1)
    )
    assert [type(action) for action in soon] == [PatchTemplate]
    assert [action.message for action in late if isinstance(action, EmitEvent)] == [
        (
            "reverting to web: cpu 100m, memory 64Mi (limit 256Mi), because the template could not be changed: "
            "the API server failed every time"
        )
    ]


# Reverts, one by one


def promoted_then(way: str, *troubles: str, sizes: Sizes = NEW, **terms: Any) -> WorkloadRun:
    """A workload whose change all pods have got, and that is then reverted while there is this trouble."""
    workload_run = WorkloadRun(way, 4, sizes, **terms)
    for _ in range(60):
        workload_run.step(STEP)
        change = workload_run.world.change_annotations.change
        if change and change.phase is Phase.VERIFYING:
            break
    for each in troubles:
        TROUBLES[each](workload_run.world)
    workload_run.world.needed_memory = 10**12  # all are killed, so it is reverted
    workload_run.step(STEP)
    workload_run.world.needed_memory = 0
    workload_run.step(STEP)
    assert any(reason == "Reverting" for _, reason, _ in workload_run.world.events)
    return workload_run


@pytest.mark.parametrize("trouble", ["nodes have no capacity", "nodes never have capacity"])
def test_revert_without_node_capacity_ends_with_what_is_possible(trouble: str) -> None:
    workload_run = promoted_then("InPlace", trouble, sizes=LESS)
    for _ in range(30):
        workload_run.step(STEP)
    world = workload_run.world
    assert world.change_annotations.change is None
    assert world.change_annotations.reverted
    messages = [message for _, reason, message in world.events if reason == "RevertIncomplete"]
    assert len(messages) == 1
    assert "web-3 and 3 more keep web: cpu 50m" in messages[0]
    assert "the node says so" in messages[0]
    assert "the node says so" in world.change_annotations.reverted.why
    assert world.sizes == {tuple((OLD | LESS).items())}
    assert {tuple(live.spec.items()) for live in world.pods_by_name.values()} == world.sizes, (
        "the revert waits for nothing more"
    )


def test_revert_without_node_capacity_evicts_where_allowed() -> None:
    """One after the other, each once; they come of their template's size, which is what they had."""
    workload_run = promoted_then("InPlaceOrRollout", "nodes never have capacity", sizes=LESS)
    for _ in range(60):
        workload_run.step(STEP)
    assert workload_run.world.written.count("evict") == 4
    assert workload_run.world.sizes == {tuple(OLD.items())}
    assert not any(reason == "RevertIncomplete" for _, reason, _ in workload_run.world.events)


def test_revert_resizes_an_unschedulable_pod_to_its_last_size_and_evicts_no_other() -> None:
    workload_run = promoted_then(
        "InPlaceOrRollout", "nodes never have capacity", "only small pods find a node", sizes=LESS
    )
    for _ in range(60):
        workload_run.step(STEP)
    assert workload_run.world.written.count("evict") == 1
    assert not any(live.unschedulable for live in workload_run.world.pods_by_name.values())
    assert any("no node has capacity" in message for _, _, message in workload_run.world.events)


def test_revert_blocked_by_a_disruption_budget_ends() -> None:
    workload_run = promoted_then(
        "InPlaceOrRollout", "nodes never have capacity", "no disruption is allowed", sizes=LESS
    )
    for _ in range(150):
        workload_run.step(STEP)
    assert workload_run.world.change_annotations.change is None
    assert any("the revert did not finish in time" in message for _, _, message in workload_run.world.events)


def test_relief_goes_before_a_revert_that_stands_still() -> None:
    """Hundreds of kills a day happened when other pods had taken the capacity."""
    workload_run = promoted_then("InPlace", "nodes have no capacity", sizes=LESS)
    workload_run.world.needed_memory = 200 * MIB
    workload_run.wanted = replace(workload_run.wanted, sizes=MORE, is_urgent=True)
    workload_run.world.full = ""
    for live in workload_run.world.pods_by_name.values():
        live.resize_rejection = "Deferred"
    for _ in range(5):
        workload_run.step(STEP)
    assert (
        workload_run.world.change_annotations.change is None
        or workload_run.world.change_annotations.change.relief
    )
    assert any("goes first" in message for _, _, message in workload_run.world.events)


def test_revert_of_a_paused_rollout_resizes_in_place_or_waits() -> None:
    stays = promoted_then("Rollout", "paused")
    for _ in range(10):
        stays.step(STEP)
    assert stays.world.change_annotations.change is None
    assert stays.world.template == OLD, "pods follow when it is resumed"
    assert any("the rollout is paused" in message for _, _, message in stays.world.events)
    resized = promoted_then("InPlaceOrRollout", "paused", template=TemplateUpdate.ALWAYS)
    for _ in range(10):
        resized.step(STEP)
    assert resized.world.sizes == {tuple(OLD.items())}


def test_revert_continues_beside_an_unwritable_template() -> None:
    workload_run = promoted_then("Rollout", "the template is refused")
    for _ in range(10):
        workload_run.step(STEP)
    assert workload_run.world.change_annotations.change is None
    assert any(
        "the template keeps" in message
        for _, reason, message in workload_run.world.events
        if reason == "RevertIncomplete"
    )


def test_revert_resizes_crashing_pods_when_they_run() -> None:
    """Else the cgroup of the pod would keep its limit (seen with Kubernetes 1.36)."""
    workload_run = WorkloadRun("InPlace", 2, POISON)
    workload_run.world.needed_memory, workload_run.world.crash_loops = 48 * MIB, True
    for _ in range(20):
        workload_run.step(STEP)
    reverting = workload_run.world.change_annotations.change
    assert reverting
    assert reverting.phase is Phase.REVERTING
    assert tuple((OLD | POISON).items()) in workload_run.world.sizes, "it is not resized while it crashes"
    for live in workload_run.world.pods_by_name.values():
        live.crashes = False
    workload_run.step(STEP)
    workload_run.step(STEP)
    assert workload_run.world.sizes == {tuple(OLD.items())}
