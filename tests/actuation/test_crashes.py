"""A change ends in one consistent state, whatever fails, with process kills and with edits by others.

The machine below injects faults in any order. At its end the faults stop, time passes, and all pods must have the
old size, the new one or, after harm, the old one again, with annotations that record it.
"""

from itertools import product
from typing import Any, NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from actuation.builders import MIB, desired_change
from actuation.world import KEY, KilledError, World, lost, resources, run
from trimtab.actuation.change_annotations import Phase
from trimtab.actuation.executor import ChangeExecutor
from trimtab.actuation.resources import Sizes, is_between
from trimtab.api.duration import Duration
from trimtab.api.optimizationpolicy import Canary, WorkloadState
from trimtab.kube.errors import Conflict, DisruptionBlocked, Forbidden, InternalError, Status, TooManyRequests
from trimtab.kube.rest.resources import DEPLOYMENTS, STATEFUL_SETS, Resource

OLD = {"web": resources(100, 64), "proxy": resources(50, 32)}
NEW = {"web": resources(250, 128)}
POISON = {"web": resources(250, 16)}
STEP = 30
LARGEST = {"web": resources(500, 256), "proxy": resources(50, 32)}
REPLACED = {"allow_recreate": True, "can_resize_in_place": False}
OR_REPLACED = {"allow_recreate": True}


class Terms(NamedTuple):
    policy: dict[str, bool]
    update: str = "RollingUpdate"
    resource: Resource = DEPLOYMENTS
    template: Sizes = OLD
    """The sizes in the template; if larger than those of the pods, the pods were resized before."""


WAYS = {
    "InPlace": Terms({}),
    "Rollout": Terms(REPLACED),
    "Recreate": Terms(REPLACED, update="OnDelete"),
    "InPlaceOrRollout": Terms(OR_REPLACED),
    "InPlaceOrRecreate": Terms(OR_REPLACED, update="OnDelete"),
    "InPlaceOrMoved": Terms(OR_REPLACED, template=LARGEST),
    "StatefulRollout": Terms(REPLACED, resource=STATEFUL_SETS),
    "StatefulInPlaceOrRollout": Terms(OR_REPLACED, resource=STATEFUL_SETS),
    "StatefulInPlaceOrMoved": Terms(OR_REPLACED, resource=STATEFUL_SETS, template=LARGEST),
}
CANARY = Canary(
    percent=30, observation=Duration.from_seconds(4 * STEP), evidence_timeout=Duration.from_seconds(8 * STEP)
)


def _refuse(code: type[Any]) -> Any:
    def fail(_: str) -> None:
        raise code(Status(message="not now", code=code.code))

    return fail


def _die(_: str) -> None:
    raise KilledError


FAULTS = {
    "killed": _die,
    "lost": lost,
    "conflict": _refuse(Conflict),
    "error": _refuse(InternalError),
    "too many": _refuse(TooManyRequests),
    "forbidden by a budget": _refuse(DisruptionBlocked),
}


class Trouble:
    """One fault, at the n-th moment before or after a write."""

    def __init__(self, fault: str, moment: int) -> None:
        self.fault, self.moment = fault, moment

    def __call__(self, what: str) -> None:
        self.moment -= 1
        # After the effect, the server can only be lost or we be dead; to say no it must not have acted.
        acted = what.startswith("after")
        if self.moment == 0 and not (acted and self.fault not in {"killed", "lost"}):
            FAULTS[self.fault](what)


class Machine(RuleBasedStateMachine):
    world: World
    actuator: ChangeExecutor

    @initialize(replicas=st.integers(1, 5), poisoned=st.booleans(), way=st.sampled_from(sorted(WAYS)))
    def start(self, *, replicas: int, poisoned: bool, way: str = "InPlace") -> None:
        self.terms = terms = WAYS[way]
        self.world = World(
            template=terms.template, replicas=replicas, resource=terms.resource, update=terms.update
        )
        if terms.template != OLD:
            self.world.apply_size_earlier(OLD)
        self.poisoned = poisoned
        self.wanted = desired_change(
            POISON if poisoned else NEW,
            needed_memory={"web": 0},
            canary=CANARY,
            min_interval=Duration(0),
            **terms.policy,
        )
        self.world.needed_memory = 48 * MIB
        self.restart()

    def restart(self) -> None:
        self.world.records.restart()
        self.actuator = ChangeExecutor(self.world, self.world.records, may_write=lambda: True)

    def reconcile(self) -> None:
        try:
            run(self.actuator.reconcile(KEY, self.wanted, now=self.world.now))
        except KilledError:
            self.restart()

    @rule()
    def go_on(self) -> None:
        self.world.intercept_write = lambda _: None
        self.reconcile()
        self.world.pass_time(STEP)

    @rule(fault=st.sampled_from(sorted(FAULTS)), moment=st.integers(1, 8))
    def go_on_in_trouble(self, fault: str, moment: int) -> None:
        self.world.intercept_write = Trouble(fault, moment)
        self.reconcile()
        self.world.pass_time(STEP)

    @precondition(lambda self: len(self.world.pods_by_name) < 7)
    @rule()
    def scale_out(self) -> None:
        self.world.replicas += 1
        self.world.add_pod()

    @precondition(lambda self: len(self.world.pods_by_name) > 1)
    @rule()
    def scale_in(self) -> None:
        self.world.replicas -= 1
        self.world.remove_pod()

    @rule()
    def lose_a_pod(self) -> None:
        self.world.remove_pod()
        self.world.add_pod()

    @rule(number=st.integers(0, 6), reason=st.sampled_from(["Deferred", "Infeasible"]))
    def fill_a_node(self, number: int, reason: str) -> None:
        pods = list(self.world.pods_by_name.values())
        pods[number % len(pods)].resize_rejection = reason

    @rule(crowded=st.booleans())
    def fill_all_nodes(self, *, crowded: bool) -> None:
        self.world.fitting_size = OLD if crowded else None

    @rule(workload=st.integers(0, 3), pods=st.integers(0, 8))
    def lag_behind(self, *, workload: int, pods: int) -> None:
        """Informers deliver no more than this from now on, each watch on its own."""
        self.world.records.lags = True
        self.world.records.deliver("workload", workload)
        self.world.records.deliver("pods", pods)

    @rule()
    def catch_up(self) -> None:
        self.world.records.lags = False

    @rule()
    def restart_leader(self) -> None:
        self.restart()

    @rule()
    def deploy_another_version(self) -> None:
        self.world.deploy_version()

    @invariant()
    def what_was_before_is_written_once(self) -> None:
        if hasattr(self, "world"):
            assert all(len(befores) == 1 for befores in self.world.befores.values())

    @invariant()
    def nothing_is_applied_twice(self) -> None:
        if hasattr(self, "world"):
            assert all(count == 1 for count in self.world.resized.values()), dict(self.world.resized)

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.intercept_write = lambda _: None
        self.world.fitting_size = None
        self.world.records.lags = False
        for live in self.world.pods_by_name.values():
            live.resize_rejection = ""
        for _ in range(60):
            self.reconcile()
            self.world.pass_time(STEP)
            if self.has_ended and len(self.world.sizes) == 1:
                break
        self.ends_in_one_true_state()

    @property
    def has_ended(self) -> bool:
        annotations = self.world.change_annotations
        return not annotations.change and (self.is_applied or annotations.reverted is not None)

    @property
    def is_applied(self) -> bool:
        """True if this change was applied, not only an earlier one."""
        applied = self.world.change_annotations.applied
        return applied is not None and applied.id != "before"

    def ends_in_one_true_state(self) -> None:
        change_annotations, old, template = (
            self.world.change_annotations,
            tuple(OLD.items()),
            self.terms.template,
        )
        assert change_annotations.change is None
        if change_annotations.applied and self.is_applied:
            assert not self.poisoned
            assert self.world.sizes == {tuple((OLD | NEW).items())}
            assert change_annotations.applied.sizes == OLD | NEW
            assert self.world.template == change_annotations.applied.template
            if (
                self.terms.policy != OR_REPLACED
            ):  # then the template changes only where a node had no capacity
                assert self.world.template == (OLD | NEW if self.terms.policy else template)
        else:
            assert change_annotations.reverted is not None
            assert self.world.template == template
            if any(reason == "RevertIncomplete" for _, reason, _ in self.world.events):
                # A node had no capacity for the earlier size. An Event reports it, and the revert ends.
                asked = OLD | (POISON if self.poisoned else NEW)
                specs = [live.spec for live in self.world.pods_by_name.values()]
                assert all(is_between(spec, OLD, asked) for spec in specs)
            else:
                assert self.world.sizes == {old}


TestAnyTrouble = Machine.TestCase
TestAnyTrouble.settings = settings(
    max_examples=100, stateful_step_count=25, suppress_health_check=[HealthCheck.too_slow]
)


def test_change_is_completed_after_a_kill_at_any_moment() -> None:
    for poisoned, way in product((False, True), WAYS):
        moment = 0
        while True:
            moment += 1
            machine = Machine()
            machine.start(replicas=4, poisoned=poisoned, way=way)
            machine.world.intercept_write = trouble = Trouble("killed", moment)
            steps_after = 0
            for _ in range(60):
                machine.reconcile()
                machine.world.pass_time(STEP)
                steps_after += machine.has_ended
                if steps_after > 5:
                    break
            machine.teardown()
            if poisoned:
                assert "killed for lack of memory" in str(machine.world.events)
            if trouble.moment > 0:
                break
        assert moment > 6


def test_change_evicts_only_canaries_once_if_no_kubelet_resizes() -> None:
    """As those of whole CPUs under a static CPU manager: each new canary would be evicted for the same reason."""
    for way in WAYS:
        machine = Machine()
        machine.start(replicas=4, poisoned=False, way=way)
        machine.world.resizable = False
        for _ in range(120):
            machine.reconcile()
            machine.world.pass_time(STEP)
        evicts = "Recreate" in way  # all of them, and for good
        assert machine.world.written.count("evict") <= (4 if evicts else 2)
        machine.world.resizable = True
        machine.teardown()


def test_change_retries_a_template_that_another_wrote_first() -> None:
    machine = Machine()
    machine.start(replicas=2, poisoned=False, way="Rollout")
    lost_races: list[str] = []

    def race(what: str) -> None:
        if what == "before patch_template" and not lost_races:
            lost_races.append(what)
            FAULTS["conflict"](what)

    machine.world.intercept_write = race
    for _ in range(20):
        machine.reconcile()
        machine.world.pass_time(STEP)
    machine.teardown()
    assert lost_races
    assert machine.world.change_annotations.applied
    assert not machine.world.change_annotations.reverted


def test_change_remembers_the_last_applied_size_of_a_failing_workload() -> None:
    machine = Machine()
    machine.start(replicas=2, poisoned=False)
    machine.teardown()
    world = machine.world
    world.intercept_write = FAULTS["error"]
    report = run(
        machine.actuator.reconcile(KEY, desired_change(OLD, min_interval=Duration(0)), now=world.now)
    )
    assert report
    assert report.state is WorkloadState.FAILED
    assert report.annotations == world.change_annotations
    assert world.change_annotations.applied


def test_change_retries_endless_conflicts_more_and_more_slowly() -> None:
    """The first is explained by an old record; an admission webhook that says no by that code has no end."""
    world = World(template=OLD, replicas=2)
    world.intercept_write = FAULTS["conflict"]
    actuator = ChangeExecutor(world, world.records, may_write=lambda: True)
    waits, states = [], []
    for _ in range(6):
        report = run(actuator.reconcile(KEY, desired_change(NEW), now=world.now))
        assert report
        assert report.requeue_at
        assert "409" in report.reason
        waits.append(report.requeue_at - world.now)
        states.append(report.state)
    assert waits == [1, 2, 4, 8, 16, 32]
    assert states == [WorkloadState.PENDING] * 4 + [WorkloadState.FAILED] * 2


def test_change_does_not_take_many_refused_pods_for_an_endless_conflict() -> None:
    world = World(template=OLD, replicas=10)
    world.apply_size_earlier(NEW)
    world.deploy_version()
    world.intercept_write = _refuse(Forbidden)
    actuator = ChangeExecutor(world, world.records, may_write=lambda: True)
    report = run(actuator.reconcile(KEY, desired_change(NEW), now=world.now))
    assert report
    assert (report.state, report.reason, report.requeue_at) == (WorkloadState.APPLYING, "", world.now + 1)


def test_revert_continues_after_a_crash() -> None:
    machine = Machine()
    machine.start(replicas=3, poisoned=True)
    while not (change := machine.world.change_annotations.change) or change.phase is not Phase.REVERTING:
        machine.reconcile()
        machine.world.pass_time(STEP)
    machine.restart()
    machine.teardown()
    assert machine.world.change_annotations.reverted
