"""A source that only knows the present, made into one with a past: it is asked again and again while it is open.

What each such source has to say is a snapshot; all else is here. A snapshot that fails is a gap in the history, and
tried again at the next turn.
"""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Self, TypeVar

from pydantic import Field, field_validator

from trimtab.kube.errors import KubeError, describe
from trimtab.kube.rest.capabilities import cluster_uid
from trimtab.kube.rest.client import Client
from trimtab.plugins import Settings
from trimtab.plural import counted
from trimtab.store import Store
from trimtab.store.errors import StoreError
from trimtab.usage.errors import SourceAway, SourceRefused, UsageError
from trimtab.usage.sampled.block_storage import UNNAMED, InMemory, InStore
from trimtab.usage.sampled.history import AHEAD, STALE, History
from trimtab.usage.sampled.hour_block import LENGTH, Sample
from trimtab.usage.source import Ask, Capabilities, Cost, Health, Progress, Source
from trimtab.usage.usage import Usage

BYTES_A_CONTAINER = 300
PUBLISHED = 60.0
"""Seconds from when something is measured until it is told: a metrics-server looks once a minute, as it comes."""


class SampledSettings(Settings):
    """How often to look, and how much to remember."""

    interval: Annotated[float, Field(ge=1)] = 30.0
    """Seconds between two looks."""

    step: Annotated[float, Field(ge=1, le=LENGTH)] = 60.0
    """Seconds of which one value is kept: the mean of CPU, the highest memory. An hour is a whole number of them."""

    keep: Annotated[float, Field(ge=LENGTH)] = 8 * 86400.0
    """Seconds of history to keep."""

    cluster: str = ""
    """The name under which the history is kept; the uid of the cluster's namespace kube-system if not given."""

    @field_validator("step")
    @classmethod
    def _divides_an_hour(cls, step: float) -> float:
        if LENGTH % step:
            raise ValueError(f"an hour must be a whole number of steps, and {step:g} s does not divide it")
        return step


S = TypeVar("S", bound=SampledSettings)


class Sampled(Source[S]):
    """Looks every `interval` while it is open; reads from what it saw, and what was in the store before."""

    def __init__(
        self,
        settings: S,
        *,
        client: Client | None = None,
        store: Store | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(settings, client=client, store=store)
        self.capabilities = Capabilities(history=True, sampled=True, late=PUBLISHED + settings.interval)
        shelf = InStore(store, cluster=self._cluster_name, source=self.name) if store else InMemory()
        self._history = History(shelf, step=settings.step, keep=settings.keep)
        self._clock = clock
        self._looking = asyncio.Lock()
        self._looked = -settings.interval
        self._seen = 0
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def snapshot(self) -> list[Sample]:
        """What all containers use now; any failure is a `UsageError`."""

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._keep_looking(), name=f"usage: {self.name}")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        with suppress(StoreError, UsageError):  # some minutes are lost, and nothing else
            await self._history.save(now=self._clock())

    async def check(self) -> Health:
        try:
            await self._look()
            with self._remembering():
                hours = len(await self._history.numbers())
        except UsageError as error:
            said, _, advice = str(error).rpartition("; ")
            return Health(
                ok=False, detail=said or advice, advice=advice if said else f"see that {self.name} is well"
            )
        seen = counted(self._seen, "container")
        # Without a store, as in a check of the cluster, the hour is the one of this very look.
        kept = f"{hours} h of history in the store" if self.store else "the present alone, no history"
        detail = f"{seen}, looked at every {self.settings.interval:g} s; {kept}"
        if strange := self._history.not_believed:
            off = f"more than {AHEAD:g} s ahead of ours or {STALE:g} s behind it"
            detail += f"; {counted(strange, 'container')} not believed, by a clock {off}: see their nodes"
        return Health(ok=True, detail=detail)

    async def cost(self, ask: Ask) -> Cost:
        """Next to nothing: the history is our own."""
        return Cost(
            queries=1,
            series=self._seen * 2,
            samples=self._seen * 2 * ask.steps,
            bytes=self._seen * BYTES_A_CONTAINER,
        )

    async def read(self, ask: Ask, *, progress: Progress | None = None) -> Usage:
        """From the history; it fails only where there is none and nothing can be seen."""
        if self._clock() - self._looked >= self.settings.interval:
            try:
                await self._look()
            except UsageError:
                with self._remembering():
                    if not await self._history.numbers():
                        raise
        with self._remembering():
            return await self._history.usage(ask, progress=progress)

    async def _cluster_name(self) -> str:
        """Name the cluster so that others which share the store do not read its samples as theirs."""
        if self.settings.cluster or self.client is None:
            return self.settings.cluster or UNNAMED
        try:
            return await cluster_uid(self.client)
        except KubeError as error:
            kind = SourceAway if error.transient else SourceRefused
            raise kind(
                f"{self.name}: the uid of namespace kube-system cannot be read, {describe(error)}; "
                "let namespaces be listed, or set cluster to a name of its own"
            ) from error

    async def _look(self) -> None:
        async with self._looking:
            samples = await self.snapshot()
            now = self._clock()
            with self._remembering():
                await self._history.take(samples, now=now)
            self._looked, self._seen = now, len(samples)

    @contextmanager
    def _remembering(self) -> Iterator[None]:
        try:
            yield
        except StoreError as error:
            raise SourceAway(f"{self.name}: its history cannot be reached, {error}; see the store") from error

    async def _keep_looking(self) -> None:
        while True:
            with suppress(UsageError):  # `check` tells of it
                await self._look()
            await asyncio.sleep(self.settings.interval)
