"""Workers on a Ray cluster: parts of an update are made on its machines, and the result is the same as here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from trimtab.lab.learners.learner import Workers
from trimtab.lab.ray_cluster import OnRay


@contextmanager
def on_ray(address: str, *, cpus: int | None = None) -> Iterator[Workers[Any, Any]]:
    """The `Workers` of the Ray at this address; `local` starts one here."""
    with OnRay(address, cpus=cpus).connected() as ray:

        def workers(function: Callable[[Any], Any], things: Iterable[Any]) -> list[Any]:
            task = ray.remote(function)
            results: list[Any] = ray.get([task.remote(thing) for thing in things])
            return results

        yield workers
