"""Runs and parts of training on a Ray cluster, a task each; or on a Ray of this machine, started for the purpose.

Ray is an extra and loaded only here. Its machines need the same trimtab as this one, and the same kind of processor
for the same result to the last bit. Ray's own usage report, which goes over the network, is off unless asked for.

Nothing here loads JAX: Ray starts processes by forking, and JAX has threads that do not like that, so Ray comes first.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from socket import create_connection
from typing import Any, TypeVar
from urllib.parse import urlsplit

from trimtab.errors import TrimtabError
from trimtab.lab.backtest import BacktestSchedule
from trimtab.lab.job import BacktestJob, JobProgress
from trimtab.lab.scores import Scores
from trimtab.lazy import require_extra
from trimtab.usage.trace import Trace

LOCAL = "local"
CONNECT_TIMEOUT = 10.0
"""Seconds."""


class RayEngine:
    """An `Engine`. The address is Ray's: `auto`, `host:6379`, `ray://host:10001`; `local` starts one here."""

    def __init__(self, address: str = LOCAL, *, cpus: int | None = None) -> None:
        self._address = address
        self._cpus = cpus
        """For a Ray that is started here; all of the machine's if not given."""

    def __call__(
        self,
        traces: Mapping[str, Trace],
        runs: Sequence[BacktestJob],
        schedule: BacktestSchedule,
        *,
        advance: JobProgress,
    ) -> Iterator[tuple[int, Scores]]:
        with self.connect() as ray:
            held = {source: ray.put(trace) for source, trace in traces.items()}
            task = ray.remote(_run_job)
            pending = {
                task.remote(held[run.recording], run, schedule): number for number, run in enumerate(runs)
            }
            while pending:
                done, _ = ray.wait(list(pending), num_returns=1)
                for result in done:
                    number = pending.pop(result)
                    scores = ray.get(result)
                    advance(number, traces[runs[number].recording].steps)
                    yield number, scores

    @contextmanager
    def connect(self) -> Iterator[Any]:
        """Ray itself, for as long as it is needed; one that this process is connected to already is used, and stays."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        with require_extra("ray", "--engine ray"):
            import ray
        if ray.is_initialized():
            yield ray
            return
        own: dict[str, Any] = (
            {"num_cpus": self._cpus, "include_dashboard": False} if self._address == LOCAL else {}
        )
        self._check_reachable()
        try:
            ray.init(self._address, log_to_driver=False, logging_level=logging.ERROR, **own)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise self._wrap_error(error) from None
        try:
            yield ray
        except ray.exceptions.RayError as error:
            raise self._wrap_error(error) from None
        finally:
            ray.shutdown()

    def _check_reachable(self) -> None:
        """Check the address first: without a listener, Ray itself waits for minutes."""
        parts = urlsplit(self._address if "://" in self._address else f"//{self._address}")
        try:
            endpoint = (parts.hostname, parts.port)
        except ValueError as error:
            raise self._wrap_error(error) from None
        if endpoint[0] and endpoint[1]:  # "auto" and "local" are words for Ray, not addresses
            try:
                create_connection(endpoint, CONNECT_TIMEOUT).close()
            except OSError as error:
                reason = error.strerror or "no answer"
                raise TrimtabError(
                    f"--ray-address {self._address}: cannot connect: {reason}; check that a Ray head runs there"
                ) from None

    def _wrap_error(self, error: Exception) -> TrimtabError:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return TrimtabError(f"--engine ray: {self._address}: {lines[-1]}")


def _run_job(trace: Trace, run: BacktestJob, schedule: BacktestSchedule) -> Scores:
    # What Ray shares cannot be written; arrays of the same type as elsewhere meet the same compiled code.
    return run.compute_scores(replace(trace, cpu=trace.cpu.copy(), memory=trace.memory.copy()), schedule)


A = TypeVar("A")
B = TypeVar("B")
Workers = Callable[[Callable[[A], B], Iterable[A]], list[B]]
"""Calls a function on each of some things, here or elsewhere, and has the results in their order."""


def run_locally(function: Callable[[A], B], things: Iterable[A]) -> list[B]:
    """The `Workers` of this process."""
    return [function(thing) for thing in things]


@contextmanager
def connect_ray_workers(address: str, *, cpus: int | None = None) -> Iterator[Workers[Any, Any]]:
    """The `Workers` of the Ray at this address; `local` starts one here."""
    with RayEngine(address, cpus=cpus).connect() as ray:

        def workers(function: Callable[[Any], Any], things: Iterable[Any]) -> list[Any]:
            task = ray.remote(function)
            results: list[Any] = ray.get([task.remote(thing) for thing in things])
            return results

        yield workers
