"""The work queue, in a loop whose time passes at once."""

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import looptime
import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from trimtab.kube.errors import KubeError, Unreachable
from trimtab.kube.runtime.workqueue import WorkQueue
from trimtab.timing import Backoff

STEADY = Backoff(first=1.0, factor=2.0, ceiling=8.0, jitter=0.0)


@dataclass
class Bench:
    """A place to work: notes what was looked at and when, and does with it what the test says."""

    duration: float = 0.0
    outcome: Callable[[str], float | None] = lambda _: None
    started: list[tuple[str, float]] = field(default_factory=list)
    busy: set[str] = field(default_factory=set)
    most_at_once: int = 0

    async def __call__(self, key: str) -> float | None:
        self.started.append((key, clock()))
        assert key not in self.busy, "worked on twice at once"
        self.busy.add(key)
        self.most_at_once = max(self.most_at_once, len(self.busy))
        try:
            await asyncio.sleep(self.duration)
            return self.outcome(key)
        finally:
            self.busy.remove(key)

    @property
    def keys(self) -> list[str]:
        return [key for key, _ in self.started]

    @property
    def times(self) -> list[float]:
        return [round(time, 6) for _, time in self.started]


def clock() -> float:
    return asyncio.get_running_loop().time()


@asynccontextmanager
async def running(queue: WorkQueue[str]) -> AsyncIterator[None]:
    task = asyncio.create_task(queue.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def metric(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"trimtab_queue_{name}", labels) or 0.0


@pytest.mark.looptime
async def test_workqueue_processes_a_key_added_many_times_once() -> None:
    bench = Bench()
    queue = WorkQueue("q", bench)
    for _ in range(5):
        queue.add("a")
    async with running(queue):
        await queue.wait_idle()
    assert bench.keys == ["a"]


@pytest.mark.looptime
async def test_workqueue_serves_ready_keys_in_insertion_order() -> None:
    bench = Bench()
    queue = WorkQueue("q", bench, workers=1)
    names = list("zyxabc")
    for name in names:
        queue.add(name)
    queue.add("z")
    async with running(queue):
        await queue.wait_idle()
    assert bench.keys == names


@pytest.mark.looptime
async def test_workqueue_starves_no_key_beside_one_that_returns_at_once() -> None:
    bench = Bench(duration=1.0, outcome=lambda key: 0.0 if key == "greedy" else None)
    queue = WorkQueue("q", bench, workers=1)
    queue.add("greedy")
    async with running(queue):
        for name in "abc":
            queue.add(name)
        await asyncio.sleep(6.5)
    assert bench.keys == ["greedy", "a", "b", "c", "greedy", "greedy", "greedy"]


@pytest.mark.looptime
async def test_workqueue_yields_after_a_reconcile_that_never_waits() -> None:
    async def spin(_: str) -> float:
        return 0.0

    queue = WorkQueue("q", spin)
    queue.add("a")
    async with running(queue):
        for _ in range(10):
            await asyncio.sleep(0)


@pytest.mark.looptime
async def test_workqueue_repeats_a_key_added_while_it_is_processed() -> None:
    bench = Bench(duration=10.0)
    queue = WorkQueue("q", bench)
    async with running(queue):
        queue.add("a")
        await asyncio.sleep(3)
        queue.add("a")
        queue.add("a")
        await queue.wait_idle()
    assert bench.times == [0.0, 10.0]


@pytest.mark.looptime
async def test_workqueue_processes_no_more_keys_than_workers() -> None:
    bench = Bench(duration=1.0)
    queue = WorkQueue("q", bench, workers=3)
    for number in range(10):
        queue.add(str(number))
    async with running(queue):
        await queue.wait_idle()
    assert bench.most_at_once == 3
    assert bench.times[-1] == 3.0


@pytest.mark.looptime
async def test_workqueue_delays_a_key() -> None:
    bench = Bench()
    queue = WorkQueue("q", bench)
    async with running(queue):
        queue.add("a", 60)
        queue.add("b", 30)
        assert len(queue) == 2
        await asyncio.sleep(61)
    assert bench.started == [("b", 30.0), ("a", 60.0)]
    assert len(queue) == 0


def test_workqueue_accepts_a_delay_of_zero() -> None:
    """Its timer is of another kind in the loop that the operator runs on."""

    async def come_back_soon() -> list[str]:
        bench = Bench()
        queue = WorkQueue("q", bench)
        async with running(queue):
            for key in ("a", "b", "c"):
                queue.add(key, 1e-9)
            while len(bench.started) < 3:
                await asyncio.sleep(0)
        return bench.keys

    assert sorted(uvloop.run(come_back_soon())) == ["a", "b", "c"]


@pytest.mark.looptime
@pytest.mark.parametrize("delays", [(60, 20), (20, 60), (60, 90, 20, 30)])
async def test_workqueue_keeps_the_earliest_of_several_delays(
    delays: Sequence[float],
) -> None:
    bench = Bench()
    queue = WorkQueue("q", bench)
    async with running(queue):
        for delay in delays:
            queue.add("a", delay)
        await asyncio.sleep(100)
    assert bench.times == [20.0]


@pytest.mark.looptime
@pytest.mark.parametrize("delays", [(60, 0), (0, 60)])
async def test_now_replaces_later(delays: Sequence[float]) -> None:
    bench = Bench()
    queue = WorkQueue("q", bench)
    async with running(queue):
        for delay in delays:
            queue.add("a", delay)
        await asyncio.sleep(100)
    assert bench.times == [0.0]


@pytest.mark.looptime
async def test_workqueue_requeues_after_the_returned_delay() -> None:
    bench = Bench(outcome=lambda _: 30.0)
    queue = WorkQueue("q", bench)
    async with running(queue):
        queue.add("a")
        await asyncio.sleep(95)
    assert bench.times == [0.0, 30.0, 60.0, 90.0]


@pytest.mark.looptime
async def test_workqueue_keeps_the_earlier_of_added_and_returned_delay() -> None:
    bench = Bench(duration=10.0, outcome=lambda _: 50.0 if len(bench.started) == 1 else None)
    queue = WorkQueue("q", bench)
    async with running(queue):
        queue.add("a")
        await asyncio.sleep(5)
        queue.add("a", 25)
        await asyncio.sleep(100)
    assert bench.times == [0.0, 30.0]


@pytest.mark.looptime
async def test_workqueue_repeats_a_key_whose_delay_ends_while_it_is_processed() -> None:
    bench = Bench(duration=10.0)
    queue = WorkQueue("q", bench)
    async with running(queue):
        queue.add("a")
        await asyncio.sleep(1)
        queue.add("a", 2)
        await asyncio.sleep(100)
    assert bench.times == [0.0, 10.0]


@pytest.mark.looptime
async def test_failures_back_off_key_by_key_until_a_success() -> None:
    results = iter([False, False, False, False, False, True, False, True])

    def fail(key: str) -> None:
        if key == "bad" and not next(results):
            raise KubeError("no")

    bench = Bench(outcome=fail)
    queue = WorkQueue("q", bench, backoff=STEADY)
    async with running(queue):
        queue.add("bad")
        queue.add("good")
        await asyncio.sleep(50)
        queue.add("bad")
        await asyncio.sleep(50)
    assert [time for key, time in bench.started if key == "bad"] == [0, 1, 3, 7, 15, 23, 50, 51]
    assert bench.keys.count("good") == 1
    assert not queue._failures


@pytest.mark.looptime
async def test_workqueue_jitters_its_backoff() -> None:
    def fail(_: str) -> None:
        raise KubeError("no")

    bench = Bench(outcome=fail)
    queue = WorkQueue("q", bench, workers=50, backoff=Backoff(first=1.0, jitter=0.5), rng=random.Random(1))
    async with running(queue):
        for number in range(50):
            queue.add(str(number))
        await asyncio.sleep(1.6)
    again = set(bench.times[50:])
    assert len(again) == 50
    assert all(1.0 <= time <= 1.5 for time in again)


@pytest.mark.looptime
async def test_workqueue_logs_a_kubernetes_failure_in_one_line_and_others_with_traceback() -> None:
    def fail(key: str) -> None:
        raise Unreachable("GET /api: refused", sent=False) if key == "a" else ZeroDivisionError("oops")

    queue = WorkQueue("sizing", Bench(outcome=fail), workers=1, backoff=STEADY)
    with capture_logs() as lines:
        async with running(queue):
            queue.add("a")
            queue.add("b")
            await queue.wait_idle()
    expected, unexpected = lines
    assert expected["key"] == "a"
    assert expected["queue"] == "sizing"
    assert expected["error"] == "GET /api: refused"
    assert not expected["exc_info"]
    assert isinstance(unexpected["exc_info"], ZeroDivisionError)
    assert metric("failures_total", queue="sizing", error="Unreachable") == 1.0


@pytest.mark.looptime
@pytest.mark.parametrize("change", [float("nan"), float("inf")])
async def test_workqueue_treats_an_invalid_delay_as_a_failure(change: float) -> None:
    bench = Bench(outcome=lambda _: change if len(bench.started) == 1 else None)
    queue = WorkQueue("q", bench, backoff=STEADY)
    async with running(queue):
        queue.add("a")
        await asyncio.sleep(10)
        with pytest.raises(ValueError, match="queue q: the delay"):
            queue.add("a", change)
    assert bench.times == [0.0, 1.0]


@pytest.mark.looptime
async def test_workqueue_treats_a_cancellation_in_a_reconcile_as_a_failure() -> None:
    async def give_up(key: str) -> None:
        if key == "a":
            inner = asyncio.create_task(asyncio.sleep(1))
            inner.cancel()
            await inner
        else:
            seen.append(key)

    seen: list[str] = []
    queue = WorkQueue("q", give_up, workers=1)
    async with running(queue):
        queue.add("a")
        queue.add("b")
        await queue.wait_idle()
    assert seen == ["b"]


@pytest.mark.looptime
async def test_workqueue_keeps_nothing_of_a_forgotten_key() -> None:
    def fail(_: str) -> None:
        raise KubeError("no")

    bench = Bench(outcome=fail)
    queue = WorkQueue("q", bench, backoff=STEADY)
    async with running(queue):
        queue.add("a")
        queue.add("b", 5)
        await asyncio.sleep(0.5)
        queue.add("c")
        for key in "abc":
            queue.forget(key)
        await asyncio.sleep(100)
    assert bench.keys == ["a"]
    assert len(queue) == 0
    assert not queue._failures


@pytest.mark.looptime
@pytest.mark.parametrize("re_added", [False, True])
async def test_work_on_a_key_that_is_forgotten_meanwhile_counts_for_nothing(*, re_added: bool) -> None:
    def fail(_: str) -> None:
        if len(bench.started) == 1:
            raise KubeError("gone")

    bench = Bench(duration=10.0, outcome=fail)
    queue = WorkQueue("q", bench, backoff=STEADY)
    async with running(queue):
        queue.add("a")
        await asyncio.sleep(5)
        queue.add("a")
        queue.forget("a")
        if re_added:
            queue.add("a")
        await asyncio.sleep(100)
    assert bench.times == ([0.0, 10.0] if re_added else [0.0])
    assert not queue._failures


@pytest.mark.looptime
async def test_workqueue_lets_groups_take_turns() -> None:
    """A namespace that made a thousand keys ready at once delayed all others by a thousand reconciles."""
    bench = Bench()
    queue = WorkQueue("q", bench, group=lambda key: key.partition("/")[0])
    for number in range(1000):
        queue.add(f"loud/{number}")
    for key in ("quiet/b", "quiet/a", "other/c", "gone/d"):
        queue.add(key)
    queue.forget("gone/d")
    queue.forget("loud/1")
    queue.forget("loud/1")
    async with running(queue):
        await queue.wait_idle()
    assert bench.keys[:6] == ["loud/0", "quiet/b", "other/c", "loud/2", "quiet/a", "loud/3"]
    assert bench.keys[6:] == [f"loud/{number}" for number in range(4, 1000)]
    assert len(queue) == 0


@pytest.mark.looptime
async def test_forgetting_the_last_ready_key_makes_the_queue_idle() -> None:
    queue = WorkQueue("q", Bench())
    queue.add("a")
    waiting = asyncio.create_task(queue.wait_idle())
    await asyncio.sleep(0)
    queue.forget("a")
    await waiting


@pytest.mark.looptime
async def test_workqueue_keeps_all_keys_when_cancelled_and_run_again() -> None:
    bench = Bench(duration=10.0)
    queue = WorkQueue("q", bench, workers=2)
    for name in "abc":
        queue.add(name)
    queue.add("d", 3)
    async with running(queue):
        await asyncio.sleep(1)
    assert not bench.busy
    async with running(queue):
        await asyncio.sleep(100)
    # The order in which two workers are cancelled is undefined.
    assert bench.keys[:3] + sorted(bench.keys[3:5]) + bench.keys[5:] == ["a", "b", "c", "a", "b", "d"]


@pytest.mark.looptime
async def test_20_000_keys_come_and_go_without_a_trace() -> None:
    bench = Bench()
    queue = WorkQueue("q", bench, workers=16)
    async with running(queue):
        for number in range(20_000):
            key = str(number)
            for delay in (900, 600, 300):
                queue.add(key, delay + number % 100)
        assert len(queue) == 20_000
        await asyncio.sleep(1000)
    assert sorted(bench.keys) == sorted(map(str, range(20_000)))
    left = (queue._ready, queue._delayed._entries, queue._delayed._heap, queue._working, queue._failures)
    assert not any(left)


@pytest.mark.looptime
async def test_workqueue_removes_superseded_timers() -> None:
    queue = WorkQueue("q", Bench())
    loop = asyncio.get_running_loop()
    for number in range(20_000):
        queue.add("a", 1e6 - number)
        queue.add(f"gone {number}", 10)
        queue.forget(f"gone {number}")
    assert len(queue) == 1
    assert len(queue._delayed._heap) < 100
    assert len(loop._scheduled) < 300  # type: ignore[attr-defined] # asyncio's own heap


@pytest.mark.looptime
async def test_workqueue_metrics_report_depth_latency_and_duration() -> None:
    queue = WorkQueue("measured", Bench(duration=2.0), workers=1)
    for name in "abc":
        queue.add(name)
    queue.add("d", 1000)
    assert metric("depth", queue="measured") == 3.0
    assert metric("delayed", queue="measured") == 1.0
    async with running(queue):
        await asyncio.sleep(1)
        assert metric("in_progress", queue="measured") == 1.0
        await queue.wait_idle()
    assert metric("depth", queue="measured") == 0.0
    assert metric("latency_seconds_sum", queue="measured") == pytest.approx(0 + 2 + 4, abs=0.01)
    assert metric("duration_seconds_sum", queue="measured") == pytest.approx(6, abs=0.01)


# Whatever is added, delayed, forgotten, fails or is slow: no key is lost, none is worked on twice at once.


@dataclass(frozen=True)
class Step:
    wait: float
    key: str
    delay: float | None  # None forgets the key


@dataclass(frozen=True)
class Attempt:
    takes: float
    result: float | str | None


@dataclass
class Story:
    """All events in order; equal times are distinguished by their index."""

    attempts: dict[str, list[Attempt]]
    happened: list[tuple[str, str, float]] = field(default_factory=list)

    def note(self, what: str, key: str, when: float | None = None) -> None:
        self.happened.append((what, key, clock() if when is None else when))

    async def reconcile(self, key: str) -> float | None:
        self.note("start", key)
        began = len(self.happened)
        attempt = self.attempts[key].pop() if self.attempts[key] else Attempt(0.0, None)
        await asyncio.sleep(attempt.takes)
        self.note("end", key)
        if attempt.result is not None and not any(
            what == "forget" and name == key for what, name, _ in self.happened[began:]
        ):
            soon = attempt.result if isinstance(attempt.result, float) else STEADY.ceiling
            self.note("add", key, clock() + soon)
        match attempt.result:
            case "kube":
                raise KubeError("no")
            case "bug":
                raise ZeroDivisionError
            case change:
                assert not isinstance(change, str)
                return change

    def check(self, key: str, *, prompt: bool) -> None:
        own = [(what, time) for what, name, time in self.happened if name == key]
        work = [(what, time) for what, time in own if what in {"start", "end"}]
        assert [what for what, _ in work] == ["start", "end"] * (len(work) // 2)
        spans = [(start, end) for (_, start), (_, end) in zip(work[::2], work[1::2], strict=True)]
        for place, (what, due) in enumerate(own):
            later = own[place + 1 :]
            if what != "add" or any(what == "forget" for what, _ in later):
                continue
            starts = [time for what, time in later if what == "start"]
            assert starts, f"{key}, due at {due}, was lost"
            if prompt:
                free = max([due, *(end for start, end in spans if start <= due <= end)])
                assert starts[0] <= free + 1e-6, f"{key}, due at {due}, came late"


ATTEMPTS = st.builds(
    Attempt,
    takes=st.sampled_from([0.0, 0.5, 3.0]),
    result=st.sampled_from([None, None, 0.0, 2.0, "kube", "bug"]),
)
STEPS = st.builds(
    Step,
    wait=st.sampled_from([0.0, 0.0, 0.25, 1.0, 5.0]),
    key=st.sampled_from("abc"),
    delay=st.sampled_from([0.0, 0.0, 0.5, 2.0, 10.0, None]),
)


@settings(max_examples=100)
@given(
    steps=st.lists(STEPS, max_size=40),
    attempts=st.dictionaries(st.sampled_from("abc"), st.lists(ATTEMPTS, max_size=12)),
    workers=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_workqueue_neither_loses_a_key_nor_processes_it_twice_at_once(
    steps: list[Step], attempts: dict[str, list[Attempt]], workers: int, seed: int
) -> None:
    story = Story(defaultdict(list, attempts))

    async def play() -> None:
        queue = WorkQueue("random", story.reconcile, workers=workers, backoff=STEADY, rng=random.Random(seed))
        async with running(queue):
            for step in steps:
                await asyncio.sleep(step.wait)
                if step.delay is None:
                    story.note("forget", step.key)
                    queue.forget(step.key)
                else:
                    story.note("add", step.key, clock() + step.delay)
                    queue.add(step.key, step.delay)
            await asyncio.sleep(1000)
        assert len(queue) == 0
        assert not queue._working
        assert not queue._failures

    with capture_logs(), asyncio.Runner(loop_factory=looptime.new_event_loop) as runner:
        runner.run(play())
    for key in "abc":
        story.check(key, prompt=workers == 3)
