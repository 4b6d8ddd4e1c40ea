"""Records of informers lag behind: a change costs conflicts and time, and is never done twice, or to what others wrote.

The world asserts at each write that nothing is overwritten which the writer has not seen, and that no pod is given what it
has. With `checks_versions` off it accepts writes on old records, as if they carried no version, and these tests fail.
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actuation.builders import LARGE, SMALL, desired_change
from actuation.drawn_worlds import DrawnWorld
from actuation.world import KEY, World, lost, run
from trimtab.actuation.decide.health import HarmSignals
from trimtab.actuation.executor import ChangeExecutor, ReconcileResult
from trimtab.actuation.hold import HOLD_ANNOTATION
from trimtab.api.duration import Duration
from trimtab.api.optimizationpolicy import Canary, WorkloadState
from trimtab.kube.errors import Conflict

STEPS = 60
QUICK = Canary(percent=50, observation=Duration.from_seconds(30), evidence_timeout=Duration.from_seconds(30))
TERMS: dict[str, Any] = {"canary": QUICK, "needed_memory": {"web": 0}, "min_interval": Duration(0)}


def stale(world: World) -> ChangeExecutor:
    """Return an executor whose informers have delivered everything so far, and nothing from now on."""
    world.records.get(KEY)
    world.records.lags = True
    return ChangeExecutor(world, world.records, may_write=lambda: True)


@pytest.mark.parametrize("first", range(5000, 5060, 10))
def test_stale_records_overwrite_nothing_and_every_change_ends(first: int) -> None:
    for seed in range(first, first + 10):
        drawn = DrawnWorld(seed, lags=True)
        for _ in range(STEPS):
            drawn.step()
        drawn.recover()
        drawn.world.records.lags = False
        drawn.desired = replace(drawn.desired, blocked_reason="")
        for _ in range(STEPS):
            run(drawn.executor.reconcile(KEY, drawn.desired, now=drawn.world.now))
            if drawn.world.change_annotations.change is None:
                break
            drawn.world.pass_time(1800)
        assert drawn.world.change_annotations.change is None, f"seed {seed}: it is still under way"


@given(st.integers(1, 4), st.lists(st.integers(0, 3), max_size=20))
def test_change_resizes_each_pod_once_however_late_its_watch_is(replicas: int, delivered: list[int]) -> None:
    world = World(template={"web": SMALL}, replicas=replicas)
    executor = stale(world)
    for most in [*delivered, *[100] * 20]:
        run(executor.reconcile(KEY, desired_change({"web": LARGE}, **TERMS), now=world.now))
        world.pass_time(30)
        world.commit()
        world.records.deliver("pods", most)
    assert world.change_annotations.applied
    assert world.written.count("resize") == replicas
    assert world.written.count("annotate") <= 5


def test_change_reads_nothing_live() -> None:
    world = World(template={"web": SMALL}, replicas=50)
    executor = ChangeExecutor(world, world.records, may_write=lambda: True)
    for _ in range(40):
        run(executor.reconcile(KEY, desired_change({"web": LARGE}, **TERMS), now=world.now))
        world.pass_time(30)
    assert world.change_annotations.applied
    assert (world.reads, world.written.count("resize"), world.written.count("annotate")) == (0, 50, 5)


def test_executor_confirms_a_workload_once_before_it_writes_to_pods_alone() -> None:
    """A new leader may not have seen what the last one wrote, and the version of a pod would not show it."""
    world = World(template={"web": SMALL}, replicas=2)
    world.apply_size_earlier({"web": LARGE})
    executor = ChangeExecutor(world, world.records, may_write=lambda: True)
    for _ in range(3):
        world.deploy_version()
        run(executor.reconcile(KEY, desired_change({"web": LARGE}), now=world.now))
        world.pass_time(30)
    assert (world.reads, world.written) == (1, ["resize"] * 6)


def test_new_leader_does_not_continue_a_change_that_the_last_one_reverted() -> None:
    world = World(template={"web": SMALL}, replicas=2)
    world.intercept_write = lambda what: lost() if what == "after resize" else None
    stale(world)
    world.records.lags = False
    executor = ChangeExecutor(world, world.records, may_write=lambda: True)
    run(executor.reconcile(KEY, desired_change({"web": LARGE}, **TERMS), now=world.now))
    world.intercept_write = lambda _: None
    assert world.change_annotations.change
    successor = stale(world)
    world.annotations.clear()  # the last leader has taken the change back, pods first
    for live in world.pods_by_name.values():
        live.spec = live.applied = {"web": SMALL}
    world.commit()
    world.records.deliver("pods", 10)
    resized = world.written.count("resize")
    run(successor.reconcile(KEY, desired_change({"web": SMALL}, **TERMS), now=world.now))
    assert world.written.count("resize") == resized


def test_conflict_writes_nothing_and_requeues_soon() -> None:
    world = World(template={"web": SMALL}, replicas=2)
    executor = stale(world)
    world.paused = True  # somebody else writes to the workload
    report = run(executor.reconcile(KEY, desired_change({"web": LARGE}), now=world.now))
    assert report
    assert (world.written, report.state, report.requeue_at) == ([], WorkloadState.PENDING, world.now + 1)
    assert "409" in report.reason
    world.records.lags = False
    report = run(executor.reconcile(KEY, desired_change({"web": LARGE}), now=world.now + 1))
    assert report
    assert report.state is WorkloadState.APPLYING


def test_lost_response_is_looked_up_before_anything_else_is_written() -> None:
    world = World(template={"web": SMALL}, replicas=2)
    executor = stale(world)
    world.intercept_write = lambda what: lost() if what == "after annotate" else None
    report = run(executor.reconcile(KEY, desired_change({"web": LARGE}), now=world.now))
    assert report
    assert (report.state, world.reads) == (WorkloadState.FAILED, 0)
    world.intercept_write = lambda _: None
    report = run(executor.reconcile(KEY, desired_change({"web": LARGE}), now=world.now + 5))
    assert report
    assert [each.id for each in report.transitions][:1] == ["Started"], (
        "the row that was sent is recorded once"
    )
    assert (world.reads, world.written[:2]) == (1, ["annotate", "resize"])


def test_evicted_pod_counts_as_deleted_before_its_watch_delivers_it() -> None:
    world = World(template={"web": SMALL}, replicas=3, update="OnDelete")
    executor = stale(world)
    wanted = desired_change({"web": LARGE}, allow_recreate=True, can_resize_in_place=False, **TERMS)
    for _ in range(5):
        run(executor.reconcile(KEY, wanted, now=world.now))
        world.pass_time(30)
        world.records.deliver("workload", 10)
    assert world.written.count("evict") == 1


def test_executor_never_writes_one_workload_twice_at_once() -> None:
    """A policy and an Intent share it, and one may begin while the other waits for the server."""
    world = World(template={"web": SMALL}, replicas=1)
    executor = ChangeExecutor(world, world.records, may_write=lambda: True)
    meanwhile: list[ReconcileResult | None] = []

    def begin_another(what: str) -> None:
        if what == "before annotate" and not meanwhile:
            meanwhile.append(run(executor.reconcile(KEY, desired_change({"web": SMALL}), now=world.now)))
            first, *_ = world.records.list_pods(world.workload)
            with pytest.raises(Conflict, match="in progress"):
                run(executor.write(KEY, lambda cluster: cluster.evict(first)))

    world.intercept_write = begin_another
    run(executor.reconcile(KEY, desired_change({"web": LARGE}), now=world.now))
    (report,) = meanwhile
    assert report
    assert (report.actions, report.requeue_at) == ((), world.now + 1)
    assert world.written == ["annotate", "resize"]


def test_change_does_not_start_once_a_person_holds_the_workload() -> None:
    """A hold that arrived while usage was queried did not stop the change that the query was for."""
    world = World(template={"web": SMALL}, replicas=2)
    executor = ChangeExecutor(world, world.records, may_write=lambda: True)

    async def query() -> HarmSignals:
        world.annotations[HOLD_ANNOTATION] = "until Monday"
        return HarmSignals()

    found = run(
        executor.reconcile(KEY, desired_change({"web": LARGE}, **TERMS), now=world.now, collect_signals=query)
    )
    assert found is not None
    assert "held" in found.reason
    assert found.requeue_at == world.now + 1
    assert world.written == []
