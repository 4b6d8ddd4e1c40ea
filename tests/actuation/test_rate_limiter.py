"""The rate limiter: changes at once, changes a minute, and their order."""

from hypothesis import given
from hypothesis import strategies as st

from actuation.builders import LARGE, NOW, SMALL, desired_change
from actuation.world import KEY, World, run
from trimtab.actuation.actions import Priority
from trimtab.actuation.deadlines import DEADLINES, MINUTE
from trimtab.actuation.decide.health import HarmSignals
from trimtab.actuation.executor import ChangeExecutor
from trimtab.actuation.rate_limiter import (
    DisruptionLimit,
    DisruptionLimiter,
    DisruptionLimits,
    LimitScope,
)
from trimtab.api.optimizationpolicy import Canary, WorkloadState

WIDE = DisruptionLimit(max_concurrent=1000, max_per_minute=1000)
HERE = LimitScope("shop", "node-1")


def pacer(
    *, cluster: DisruptionLimit = WIDE, namespace: DisruptionLimit = WIDE, node: DisruptionLimit = WIDE
) -> DisruptionLimiter:
    return DisruptionLimiter(DisruptionLimits(cluster=cluster, namespace=namespace, node=node))


limits = st.builds(DisruptionLimit, max_concurrent=st.integers(1, 4), max_per_minute=st.integers(1, 6))
takings = st.lists(
    st.tuples(st.integers(0, 30), st.sampled_from(["a", "b"]), st.sampled_from(["n1", "n2"]), st.booleans()),
    max_size=40,
)


@given(cluster=limits, namespace=limits, node=limits, asked=takings)
def test_rate_limiter_keeps_each_scope_within_its_limits(
    cluster: DisruptionLimit,
    namespace: DisruptionLimit,
    node: DisruptionLimit,
    asked: list[tuple[int, str, str, bool]],
) -> None:
    pace = pacer(cluster=cluster, namespace=namespace, node=node)
    now = 0
    reverting: list[tuple[int, str, str]] = []
    held: list[tuple[int, str, str]] = []
    for number, (later, in_namespace, on_node, settles) in enumerate(asked):
        now += later
        if (
            pace.acquire(number, LimitScope(in_namespace, on_node), priority=Priority.INCREASE, now=now)
            == now
        ):
            reverting.append((now, in_namespace, on_node))
            held.append((number, in_namespace, on_node))
        if settles and held:
            pace.release([held.pop(0)[0]])
        for limit, scope in ((cluster, None), (namespace, 1), (node, 2)):
            groups = (
                {"": (held, reverting)}
                if scope is None
                else {
                    name: (
                        [each for each in held if each[scope] == name],
                        [each for each in reverting if each[scope] == name],
                    )
                    for name in {each[scope] for each in reverting}
                }
            )
            for at_once, all_taken in groups.values():
                assert len(at_once) <= limit.max_concurrent
                assert sum(now - each[0] < MINUTE for each in all_taken) <= limit.max_per_minute


def test_rate_limiter_keeps_a_slot_for_a_waiting_increase() -> None:
    pace = pacer(cluster=DisruptionLimit(max_concurrent=1, max_per_minute=100))
    assert pace.acquire("first", HERE, priority=Priority.DECREASE, now=0) == 0
    again = pace.acquire("up", HERE, priority=Priority.INCREASE, now=0)
    assert again > 0
    pace.release(["first"])
    assert pace.acquire("down", HERE, priority=Priority.DECREASE, now=again) > again
    assert pace.acquire("up", HERE, priority=Priority.INCREASE, now=again) == again
    pace.release(["up"])
    assert pace.acquire("down", HERE, priority=Priority.DECREASE, now=again) == again


def test_rate_limiter_admits_waiting_changes_one_by_one_in_order() -> None:
    pace = pacer(cluster=DisruptionLimit(max_concurrent=1, max_per_minute=60))
    pace.acquire("first", HERE, priority=Priority.INCREASE, now=0)
    turns = [pace.acquire(number, HERE, priority=Priority.INCREASE, now=0) for number in range(1000)]
    assert turns == sorted(set(turns))
    assert turns[-1] - turns[0] == 999
    assert pace.acquire(500, HERE, priority=Priority.INCREASE, now=0.5) == turns[500]


def test_rate_limiter_never_delays_a_revert() -> None:
    pace = pacer(cluster=DisruptionLimit(max_concurrent=1, max_per_minute=1))
    assert pace.acquire("first", HERE, priority=Priority.INCREASE, now=0) == 0
    assert pace.acquire("back", HERE, priority=Priority.REVERT, now=0) == 0


def test_rate_limiter_frees_a_leaked_slot_in_the_end() -> None:
    pace = pacer(cluster=DisruptionLimit(max_concurrent=1, max_per_minute=100))
    pace.acquire("lost", HERE, priority=Priority.INCREASE, now=0)
    assert pace.acquire("next", HERE, priority=Priority.INCREASE, now=DEADLINES.slot - 1) > DEADLINES.slot - 1
    assert pace.acquire("next", HERE, priority=Priority.INCREASE, now=DEADLINES.slot) == DEADLINES.slot


def test_rate_limiter_without_a_slot_starts_no_change_and_sends_no_request() -> None:
    full = pacer(cluster=DisruptionLimit(max_concurrent=1, max_per_minute=99))
    full.acquire("another", HERE, priority=Priority.INCREASE, now=NOW)
    world = World(template={"web": SMALL}, replicas=2)
    actuator = ChangeExecutor(world, world.records, may_write=lambda: True, limiter=full)
    asked: list[str] = []

    async def collect_signals() -> HarmSignals:
        asked.append("Prometheus")
        return HarmSignals()

    report = run(actuator.reconcile(KEY, desired_change(), now=NOW, collect_signals=collect_signals))
    assert report
    assert (report.state, report.requeue_at) == (WorkloadState.PENDING, NOW + 1)
    assert (report.actions, world.written, world.events, asked) == ((), [], [], [])


def test_executor_resizes_no_more_pods_at_once_than_allowed() -> None:
    world = World(template={"web": SMALL}, replicas=6)
    actuator = ChangeExecutor(
        world,
        world.records,
        may_write=lambda: True,
        limiter=pacer(cluster=DisruptionLimit(max_concurrent=2, max_per_minute=99)),
    )
    wanted = desired_change({"web": LARGE}, canary=Canary(percent=100))
    for _ in range(12):
        report = run(actuator.reconcile(KEY, wanted, now=world.now))
        under_way = [live for live in world.pods_by_name.values() if live.spec != live.applied]
        assert len(under_way) <= 2
        if under_way:
            assert report
            assert report.requeue_at
        world.pass_time(5)
    assert world.sizes == {(("web", LARGE),)}


def test_rate_limiter_frees_the_slot_of_an_evicted_pod() -> None:
    """The record of the evicted pod stays unchanged until it is deleted."""
    world = World(template={"web": SMALL}, replicas=2)
    actuator = ChangeExecutor(
        world,
        world.records,
        may_write=lambda: True,
        limiter=pacer(cluster=DisruptionLimit(max_concurrent=1, max_per_minute=99)),
    )
    wanted = desired_change({"web": LARGE}, canary=Canary(percent=100))
    run(actuator.reconcile(KEY, wanted, now=world.now))
    (evicted,) = [live for live in world.pods_by_name.values() if live.spec != live.applied]
    evicted.phase, evicted.resize_rejection = "Failed", "Deferred"
    world.add_pod()
    world.pass_time(5)
    run(actuator.reconcile(KEY, wanted, now=world.now))
    assert [live.spec["web"] for live in world.pods_by_name.values()].count(LARGE) == 2


def test_rate_limiter_applies_new_limits_and_keeps_held_slots() -> None:
    one = DisruptionLimit(max_concurrent=1, max_per_minute=1000)
    pace = pacer(node=one)
    assert pace.acquire("first", HERE, priority=Priority.INCREASE, now=NOW) == NOW
    assert pace.acquire("second", HERE, priority=Priority.INCREASE, now=NOW) > NOW
    pace.set_limits(
        DisruptionLimits(
            cluster=WIDE, namespace=WIDE, node=DisruptionLimit(max_concurrent=2, max_per_minute=1000)
        )
    )
    assert pace.acquire("second", HERE, priority=Priority.INCREASE, now=NOW + 1) == NOW + 1
    assert pace.acquire("third", HERE, priority=Priority.INCREASE, now=NOW + 1) > NOW + 1
    pace.set_limits(DisruptionLimits(cluster=one, namespace=WIDE, node=WIDE))
    pace.release(["first"])
    assert pace.acquire("third", HERE, priority=Priority.INCREASE, now=NOW + 5) > NOW + 5


def test_rate_limiter_survives_a_clock_that_is_set_back() -> None:
    one = pacer(cluster=DisruptionLimit(max_concurrent=2, max_per_minute=1))
    assert one.acquire("a", LimitScope("n"), priority=Priority.INCREASE, now=86_400.0) == 86_400.0
    assert one.acquire("b", LimitScope("n"), priority=Priority.INCREASE, now=86_400.0) > 86_400.0
    assert one.acquire("b", LimitScope("n"), priority=Priority.INCREASE, now=10.0) == 10.0


def test_rate_limiter_frees_no_slots_of_others_for_an_old_check() -> None:
    """A look asks Prometheus and the API server, which may be slow, and goes by the time at which it began."""
    one = pacer(cluster=DisruptionLimit(max_concurrent=1, max_per_minute=100))
    assert one.acquire("a", LimitScope("n"), priority=Priority.INCREASE, now=1000.0) == 1000.0
    assert one.acquire("b", LimitScope("n"), priority=Priority.INCREASE, now=1000.0) > 1000.0
    assert one.acquire("c", LimitScope("n"), priority=Priority.INCREASE, now=800.0) > 800.0


def test_rate_limiter_forgets_deleted_namespaces_nodes_and_pods() -> None:
    pace = pacer(node=DisruptionLimit(max_concurrent=1, max_per_minute=1))
    for hour in range(100):
        place = LimitScope(f"review-{hour}", f"spot-{hour}")
        pace.acquire(f"pod-{hour}", place, priority=Priority.INCREASE, now=hour * DEADLINES.slot)
        pace.acquire(f"waits-{hour}", place, priority=Priority.DECREASE, now=hour * DEADLINES.slot)
    assert pace.entry_count < 12
