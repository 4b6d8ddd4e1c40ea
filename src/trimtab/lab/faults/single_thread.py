"""Run a simulation in one thread: work that production gives to threads is done at once, and nothing really waits.

Without threads a run needs no switches between them, which cost most of the time on a busy machine, and repeats to the
byte whatever else the machine does. Every call still lets other tasks run, as in production.
"""

from __future__ import annotations

import asyncio
import gc
import selectors
import signal
import sqlite3
from collections.abc import Callable, Coroutine, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import Context
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, TypeVarTuple, Unpack

import aiosqlite

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_COLLECTOR_THRESHOLDS = (20_000, 20, 50)
"""The thresholds of the garbage collector in a run: its records are in no cycles, and by default each is looked at often."""
IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - synced writes would take long on a disk
"""The folder in memory in which a run keeps its files; None where there is none."""


class EndlessRunError(BaseException):
    """A simulation took more time of a core than it may; no error, so that what is simulated cannot handle it."""


@contextmanager
def limit_work(seconds: float) -> Iterator[None]:
    """Raise an EndlessRunError where the main thread is after this time of a core, also in a loop without an await."""

    def stop(*_: object) -> None:
        raise EndlessRunError(f"the run took more than {seconds:g} s of a core")

    before = signal.signal(signal.SIGVTALRM, stop)
    # Again and again: the first error may end only a task that nobody waits for.
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def run_alone(work: Coroutine[Any, Any, T]) -> T:
    """Run a simulation on an event loop of its own, whose timers cost no time."""
    thresholds = gc.get_threshold()
    gc.set_threshold(*_COLLECTOR_THRESHOLDS)
    try:
        with asyncio.Runner(loop_factory=_SimulationLoop) as runner:
            return runner.run(work)
    finally:
        gc.set_threshold(*thresholds)


def use_one_thread() -> None:
    """Have the running event loop do the work of threads at once."""
    asyncio.get_running_loop().set_default_executor(_ImmediateExecutor())


def connect_to_sqlite(database: str, **settings: Any) -> aiosqlite.Connection:
    """Return a connection without a thread, as `aiosqlite.connect` returns one with a thread."""
    return _ImmediateConnection(lambda: sqlite3.connect(database, **settings), iter_chunk_size=64)


class _ImmediateExecutor(ThreadPoolExecutor):
    """Does all work in the thread that submits it."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        done: Future[T] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - raised by who waits for the result
            done.set_exception(error)
        return done


class _ImmediateConnection(aiosqlite.Connection):
    """A connection to SQLite in the thread that uses it."""

    def __await__(self) -> Generator[Any, None, aiosqlite.Connection]:
        return self._connect().__await__()

    async def _connect(self) -> aiosqlite.Connection:
        self._connection = self._connector()
        return self

    async def _execute(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._connection is None:
            raise ValueError("Connection closed")
        try:
            return fn(*args, **kwargs)
        finally:
            await asyncio.sleep(0)

    def stop(self) -> None:
        self._running = False
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Idle(selectors.SelectSelector):
    """Waits for nothing: the time of the loop jumps to its next timer."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("the simulation waits for something that never happens")
        self.now += max(timeout, 0.0)
        return []


class _SimulationLoop(asyncio.SelectorEventLoop):
    """An event loop without sockets and threads."""

    def __init__(self) -> None:
        self._idle = _Idle()
        super().__init__(self._idle)
        self._clock_resolution = 1e-3  # a timer after days is due although its time is rounded

    def time(self) -> float:
        return self._idle.now

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)
