"""Turn a source without history into one with history, by polling it while it is open.

A source implements only `snapshot`, or `parse_page` if it is a list of the API server. A failed snapshot is a gap in the
history and is retried at the next poll.
"""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, ClassVar, Self, TypeVar

from pydantic import Field, field_validator

from trimtab.kube.errors import KubeError, NotFound, describe
from trimtab.kube.rest.capabilities import get_cluster_uid
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.resources import Resource
from trimtab.plugins import Settings
from trimtab.plural import pluralize
from trimtab.store import Store
from trimtab.store.errors import StoreError
from trimtab.timing import Interval
from trimtab.usage.errors import SourceRefused, SourceUnavailable, UsageError
from trimtab.usage.sampled.block_storage import DEFAULT_CLUSTER, MemoryBlockStorage, StoreBlockStorage
from trimtab.usage.sampled.history import MAX_CLOCK_SKEW, MAX_SAMPLE_AGE, SampleHistory
from trimtab.usage.sampled.hour_block import HOUR_SECONDS, ContainerSample
from trimtab.usage.source import Capabilities, Cost, Progress, Source, SourceHealth, UsageQuery
from trimtab.usage.usage import Usage

BYTES_PER_CONTAINER = 300
PUBLISH_DELAY = 60.0
"""The maximum seconds between a measurement and its publication; metrics-server scrapes once a minute."""


class PollingSettings(Settings):
    """The polling interval and the retention of the history."""

    interval: Annotated[float, Field(ge=1)] = 30.0
    """The seconds between two polls."""

    step: Annotated[float, Field(ge=1, le=HOUR_SECONDS)] = 60.0
    """The step in seconds of stored values (mean CPU, highest memory); it must divide an hour."""

    keep: Annotated[float, Field(ge=HOUR_SECONDS)] = 8 * 86400.0
    """The seconds of history to keep."""

    cluster: str = ""
    """The name under which the history is stored; by default the uid of the namespace kube-system."""

    @field_validator("step")
    @classmethod
    def _check_divides_hour(cls, step: float) -> float:
        if HOUR_SECONDS % step:
            raise ValueError(f"must divide an hour into whole steps, and {step:g} s does not")
        return step


S = TypeVar("S", bound=PollingSettings)


class PollingSource(Source[S]):
    """Polls every `interval` seconds while open; reads from its history, including that in the store."""

    def __init__(
        self,
        settings: S,
        *,
        client: Client | None = None,
        store: Store | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(settings, client=client, store=store)
        # Without a store the history begins when the source is opened: it has no past to learn from.
        self.capabilities = Capabilities(
            history=store is not None, final_after=PUBLISH_DELAY + settings.interval
        )
        storage = (
            StoreBlockStorage(store, fetch_cluster_name=self._fetch_cluster_name, source=self.name)
            if store
            else MemoryBlockStorage()
        )
        self._history = SampleHistory(storage, step=settings.step, retention=settings.keep)
        self._clock = clock
        self._poll_lock = asyncio.Lock()
        self._polling = Interval(settings.interval)
        self._container_count = 0
        self._task: asyncio.Task[None] | None = None

    @classmethod
    def shortest_step(cls, settings: S) -> float:
        return max(settings.step, settings.interval)

    @abstractmethod
    async def snapshot(self) -> list[ContainerSample]:
        """Return the current usage of all containers; raise `UsageError` on any failure."""

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._poll_forever(), name=f"usage: {self.name}")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        with suppress(StoreError, UsageError):  # only the last minutes are lost
            await self._history.save(now=self._clock())

    async def check(self) -> SourceHealth:
        try:
            await self._poll()
            with self._wrap_store_errors():
                hours = len(await self._history.list_hours())
        except UsageError as error:
            problem, _, advice = str(error).rpartition("; ")
            remedy = advice if problem else f"check that {self.name} is running"
            return SourceHealth(ok=False, detail=problem or advice, advice=remedy)
        polled = pluralize(self._container_count, "container")
        # Without a store, as in `trimtab doctor`, the only hour is that of this poll.
        kept = f"{hours} h of history in the store" if self.store else "current usage only, no history"
        detail = f"{polled}, polled every {self.settings.interval:g} s; {kept}"
        if rejected := self._history.rejected_count:
            off = f"more than {MAX_CLOCK_SKEW:g} s ahead of ours or {MAX_SAMPLE_AGE:g} s behind it"
            detail += (
                f"; {pluralize(rejected, 'container')} ignored because of a clock {off}: check their nodes"
            )
        return SourceHealth(ok=True, detail=detail)

    async def estimate_cost(self, query: UsageQuery) -> Cost:
        """Estimate the cost, which is low because the history is Trimtab's own."""
        return Cost(
            queries=1,
            series=self._container_count * 2,
            samples=self._container_count * 2 * query.steps,
            bytes=self._container_count * BYTES_PER_CONTAINER,
        )

    async def read(self, query: UsageQuery, *, progress: Progress | None = None) -> Usage:
        """Read from the history; raise only if it is empty and the poll fails."""
        now = self._clock()
        if self._polling.due(now):
            try:
                await self._poll()
            except UsageError:
                with self._wrap_store_errors():
                    if not await self._history.list_hours():
                        raise
        with self._wrap_store_errors():
            return await self._history.read(query, now=now, progress=progress)

    async def _fetch_cluster_name(self) -> str:
        """Return a name that keeps the samples of clusters that share a store apart."""
        if self.settings.cluster or self.client is None:
            return self.settings.cluster or DEFAULT_CLUSTER
        try:
            return await get_cluster_uid(self.client)
        except KubeError as error:
            kind = SourceUnavailable if error.transient else SourceRefused
            raise kind(
                f"{self.name}: the uid of namespace kube-system cannot be read, {describe(error)}; "
                "grant list on namespaces, or set cluster to a unique name"
            ) from error

    async def _poll(self) -> None:
        async with self._poll_lock:
            samples = await self.snapshot()
            now = self._clock()
            with self._wrap_store_errors():
                await self._history.add_samples(samples, now=now)
            self._polling.restart(now)
            self._container_count = len(samples)

    @contextmanager
    def _wrap_store_errors(self) -> Iterator[None]:
        try:
            yield
        except StoreError as error:
            raise SourceUnavailable(
                f"{self.name}: the history is unavailable: {error}; check the store"
            ) from error

    async def _poll_forever(self) -> None:
        while True:
            with suppress(UsageError):  # `check` reports it
                await self._poll()
            await asyncio.sleep(self.settings.interval)


class ListPollingSource(PollingSource[PollingSettings]):
    """Polls a list of objects of one kind, which the API server sends in pages."""

    settings_type = PollingSettings
    resource: ClassVar[Resource]
    not_found: ClassVar[str]
    """The name of the missing resource and the remedy, for clusters without it."""
    advice: ClassVar[str]
    """The remedy if the list cannot be read."""

    @abstractmethod
    def parse_page(self, page: bytes) -> list[ContainerSample]:
        """Return the samples in a page; raise `UsageResponseError` if it is something else."""

    async def snapshot(self) -> list[ContainerSample]:
        if self.client is None:
            raise SourceRefused(f"{self.name}: needs access to the API server; give a client")
        try:
            return [
                sample
                async for page in self.client.list_pages(self.resource)
                for sample in self.parse_page(page)
            ]
        except NotFound as error:
            raise SourceRefused(f"{self.name}: the cluster has no {self.not_found}") from error
        except KubeError as error:
            kind = SourceUnavailable if error.transient else SourceRefused
            raise kind(f"{self.name}: {describe(error)}; {self.advice}") from error
