"""Runs on this machine: a process a core, as Python computes with one core a process.

The recordings lie in a file that all processes map, so that each is in memory once. Where there is little to do it is
done here: to start processes takes longer.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from ctypes import c_int64
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.errors import TrimtabError
from trimtab.lab.backtest import BacktestSchedule
from trimtab.lab.job import BacktestJob, JobProgress
from trimtab.lab.scores import Scores
from trimtab.usage.trace import Trace

SMALL_WORK = 20_000_000
"""Samples of all runs together: some ten seconds' work."""
POLL_INTERVAL = 0.2
"""Seconds between two looks at how far the processes have come."""


def run_on_cores(
    traces: Mapping[str, Trace],
    runs: Sequence[BacktestJob],
    schedule: BacktestSchedule,
    *,
    advance: JobProgress,
    small_work: int = SMALL_WORK,
) -> Iterator[tuple[int, Scores]]:
    """An `Engine`; with fewer than `little` samples, in this process alone."""
    work = sum(traces[run.recording].cpu.size for run in runs)
    workers = min(len(os.sched_getaffinity(0)), len(runs))
    if workers < 2 or work < small_work:
        return _run_in_process(traces, runs, schedule, advance)
    return _run_in_pool(workers, traces, runs, schedule, advance)


def _run_in_process(
    traces: Mapping[str, Trace], runs: Sequence[BacktestJob], schedule: BacktestSchedule, advance: JobProgress
) -> Iterator[tuple[int, Scores]]:
    for number, run in enumerate(runs):
        yield number, run.compute_scores(traces[run.recording], schedule, progress=partial(advance, number))


def _run_in_pool(
    workers: int,
    traces: Mapping[str, Trace],
    runs: Sequence[BacktestJob],
    schedule: BacktestSchedule,
    advance: JobProgress,
) -> Iterator[tuple[int, Scores]]:
    # Not a fork of this process, which has threads: of a server that has none and has loaded what a run needs.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    steps = context.RawArray(c_int64, len(runs))
    reported = [0] * len(runs)
    with tempfile.TemporaryDirectory(prefix="trimtab-") as folder:
        laid = {
            source: _save_arrays(trace, Path(folder), number)
            for number, (source, trace) in enumerate(traces.items())
        }
        pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_init_worker, initargs=(steps,))
        others = set(multiprocessing.active_children())
        pending: dict[Future[Scores], int] = {}
        try:
            for number, run in enumerate(runs):
                pending[pool.submit(_run_job, laid[run.recording], run, schedule, number)] = number
            while pending:
                done, _ = wait(pending, timeout=POLL_INTERVAL, return_when=FIRST_COMPLETED)
                for number, now in enumerate(steps):
                    advance(number, now - reported[number])
                    reported[number] = now
                for future in done:
                    yield pending.pop(future), future.result()
        except BrokenProcessPool:
            raise TrimtabError(
                "a process of the back-test was killed, most likely because the machine ran out of memory; use fewer recordings"
            ) from None
        finally:
            if pending:  # interrupted: nobody waits for the rest
                for process in set(multiprocessing.active_children()) - others:
                    process.terminate()
            pool.shutdown(cancel_futures=True)


def _save_arrays(trace: Trace, folder: Path, number: int) -> tuple[Trace, Path, Path]:
    """The trace without its arrays, and where these are."""
    cpu, memory = folder / f"{number}-cpu.npy", folder / f"{number}-memory.npy"
    np.save(cpu, trace.cpu)
    np.save(memory, trace.memory)
    nothing = np.empty((0, 0))
    return replace(trace, cpu=nothing, memory=nothing), cpu, memory


_steps: Any = None
"""In a worker: where it tells how far each run has come."""


def _init_worker(steps: Any) -> None:
    global _steps  # noqa: PLW0603 - a pool has no other way to give its workers shared memory
    _steps = steps
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the command reports an interrupt, not each worker


def _run_job(
    saved: tuple[Trace, Path, Path], run: BacktestJob, schedule: BacktestSchedule, number: int
) -> Scores:
    bare, cpu, memory = saved
    # Copied where written, so that the arrays are of the same type as in one process: so is the compiled code.
    trace = replace(bare, cpu=np.load(cpu, mmap_mode="c"), memory=np.load(memory, mmap_mode="c"))

    def progress(rows: int) -> None:
        _steps[number] += rows

    return run.compute_scores(trace, schedule, progress=progress)
