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
from trimtab.kube.rest.capabilities import get_cluster_uid
from trimtab.kube.rest.client import Client
from trimtab.plugins import Settings
from trimtab.plural import pluralize
from trimtab.store import Store
from trimtab.store.errors import StoreError
from trimtab.usage.errors import SourceRefused, SourceUnavailable, UsageError
from trimtab.usage.sampled.block_storage import DEFAULT_CLUSTER, MemoryBlockStorage, StoreBlockStorage
from trimtab.usage.sampled.history import MAX_CLOCK_SKEW, MAX_SAMPLE_AGE, SampleHistory
from trimtab.usage.sampled.hour_block import HOUR_SECONDS, ContainerSample
from trimtab.usage.source import Capabilities, Cost, Progress, Source, SourceHealth, UsageQuery
from trimtab.usage.usage import Usage

BYTES_PER_CONTAINER = 300
PUBLISH_DELAY = 60.0
"""Seconds from when something is measured until it is told: a metrics-server looks once a minute, as it comes."""


class PollingSettings(Settings):
    """How often to look, and how much to remember."""

    interval: Annotated[float, Field(ge=1)] = 30.0
    """Seconds between two looks."""

    step: Annotated[float, Field(ge=1, le=HOUR_SECONDS)] = 60.0
    """Seconds of which one value is kept: the mean of CPU, the highest memory. An hour is a whole number of them."""

    keep: Annotated[float, Field(ge=HOUR_SECONDS)] = 8 * 86400.0
    """Seconds of history to keep."""

    cluster: str = ""
    """The name under which the history is kept; the uid of the cluster's namespace kube-system if not given."""

    @field_validator("step")
    @classmethod
    def _check_divides_hour(cls, step: float) -> float:
        if HOUR_SECONDS % step:
            raise ValueError(f"an hour must be a whole number of steps, and {step:g} s does not divide it")
        return step


S = TypeVar("S", bound=PollingSettings)


class PollingSource(Source[S]):
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
        self.capabilities = Capabilities(
            history=True, polled=True, publish_delay=PUBLISH_DELAY + settings.interval
        )
        shelf = (
            StoreBlockStorage(store, fetch_cluster_name=self._fetch_cluster_name, source=self.name)
            if store
            else MemoryBlockStorage()
        )
        self._history = SampleHistory(shelf, step=settings.step, retention=settings.keep)
        self._clock = clock
        self._poll_lock = asyncio.Lock()
        self._polled_at = -settings.interval
        self._container_count = 0
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def snapshot(self) -> list[ContainerSample]:
        """What all containers use now; any failure is a `UsageError`."""

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._poll_forever(), name=f"usage: {self.name}")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        with suppress(StoreError, UsageError):  # some minutes are lost, and nothing else
            await self._history.save(now=self._clock())

    async def check(self) -> SourceHealth:
        try:
            await self._poll()
            with self._wrap_store_errors():
                hours = len(await self._history.list_hours())
        except UsageError as error:
            said, _, advice = str(error).rpartition("; ")
            return SourceHealth(
                ok=False, detail=said or advice, advice=advice if said else f"see that {self.name} is well"
            )
        seen = pluralize(self._container_count, "container")
        # Without a store, as in a check of the cluster, the hour is the one of this very look.
        kept = f"{hours} h of history in the store" if self.store else "the present alone, no history"
        detail = f"{seen}, looked at every {self.settings.interval:g} s; {kept}"
        if strange := self._history.rejected_count:
            off = f"more than {MAX_CLOCK_SKEW:g} s ahead of ours or {MAX_SAMPLE_AGE:g} s behind it"
            detail += f"; {pluralize(strange, 'container')} not believed, by a clock {off}: see their nodes"
        return SourceHealth(ok=True, detail=detail)

    async def estimate_cost(self, query: UsageQuery) -> Cost:
        """Next to nothing: the history is our own."""
        return Cost(
            queries=1,
            series=self._container_count * 2,
            samples=self._container_count * 2 * query.steps,
            bytes=self._container_count * BYTES_PER_CONTAINER,
        )

    async def read(self, query: UsageQuery, *, progress: Progress | None = None) -> Usage:
        """From the history; it fails only where there is none and nothing can be seen."""
        if self._clock() - self._polled_at >= self.settings.interval:
            try:
                await self._poll()
            except UsageError:
                with self._wrap_store_errors():
                    if not await self._history.list_hours():
                        raise
        with self._wrap_store_errors():
            return await self._history.read(query, progress=progress)

    async def _fetch_cluster_name(self) -> str:
        """Name the cluster so that others which share the store do not read its samples as theirs."""
        if self.settings.cluster or self.client is None:
            return self.settings.cluster or DEFAULT_CLUSTER
        try:
            return await get_cluster_uid(self.client)
        except KubeError as error:
            kind = SourceUnavailable if error.transient else SourceRefused
            raise kind(
                f"{self.name}: the uid of namespace kube-system cannot be read, {describe(error)}; "
                "let namespaces be listed, or set cluster to a name of its own"
            ) from error

    async def _poll(self) -> None:
        async with self._poll_lock:
            samples = await self.snapshot()
            now = self._clock()
            with self._wrap_store_errors():
                await self._history.add_samples(samples, now=now)
            self._polled_at, self._container_count = now, len(samples)

    @contextmanager
    def _wrap_store_errors(self) -> Iterator[None]:
        try:
            yield
        except StoreError as error:
            raise SourceUnavailable(
                f"{self.name}: its history cannot be reached, {error}; see the store"
            ) from error

    async def _poll_forever(self) -> None:
        while True:
            with suppress(UsageError):  # `check` tells of it
                await self._poll()
            await asyncio.sleep(self.settings.interval)
