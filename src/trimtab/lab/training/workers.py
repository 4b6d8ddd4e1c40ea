"""Workers run the parts of an update: in this process or on a Ray cluster. The result is the same.

Nothing here loads JAX: Ray starts processes by forking, and JAX has threads that do not like that, so Ray comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from trimtab.lab.ray_engine import RayEngine

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
