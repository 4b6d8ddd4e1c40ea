"""Keeps a cache equal to the server: list once, follow the watch, resume where it broke.

The first list is streamed (`sendInitialEvents`), so that no page of raw objects is ever held; a server
that cannot do it is read in pages. After that every connection resumes from the last version seen, and
only a 410 (that version is compacted away) costs a new list, or a server that has gone back to before
it, as one whose data was restored from a backup. What vanished meanwhile is then reported as deleted.
Any failure costs time, never correctness: the cache keeps what it last knew.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, Never

import structlog
from prometheus_client import Counter, Gauge

from trimtab.kube.cache.failure_aggregator import Breaks
from trimtab.kube.cache.projection import R, Shape, version_number
from trimtab.kube.cache.store import Cache, Index
from trimtab.kube.cache.watch import EventDecoder, whole_lines
from trimtab.kube.errors import BadRequest, Gone, Invalid, KubeError, TimedOut, describe
from trimtab.kube.rest.client import Client, selectors
from trimtab.kube.rest.list_pages import PageDecoder, ignore
from trimtab.kube.rest.resources import Resource
from trimtab.kube.rest.retry import Backoff

log = structlog.get_logger(__name__)

_EVENTS = Counter("trimtab_informer_events_total", "Watch events taken in", ["resource"])
_LISTS = Counter("trimtab_informer_lists_total", "Full lists, the first one included", ["resource"])
_FAILURES = Counter("trimtab_informer_failures_total", "Lists and watches that broke", ["resource", "error"])
_RECORDS = Gauge("trimtab_informer_records", "Records in the cache", ["resource"])
_LAG = Gauge("trimtab_informer_lag_seconds", "Since the server was last heard", ["resource"])

_TRIES, _LONG = 6, 30.0
"""So often, or for so many seconds, may fail what passes by itself, until that counts as an answer."""

_PAGE_SIZE = 500
_LIST_IS_OVER = b'"k8s.io/initial-events-end":"true"'


@dataclass(frozen=True, slots=True)
class Scope:
    """Which objects to watch: all, or those of a namespace, with these labels or fields."""

    namespace: str | None = None
    labels: str = ""
    fields: str = ""
    called: str = ""
    """What logs and metrics call them; else by their resource, of which there may be another informer."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long an informer waits for what, in seconds."""

    silence: float = 70.0
    """Without a byte for so long (the server sends a bookmark a minute) a connection counts as dead."""
    watch_lasts: tuple[float, float] = (300.0, 600.0)
    """The server ends a watch after a random time in this range, so that load spreads over replicas."""
    gather: float = 0.1
    """After a few events wait so long for more: many at once cost a fraction of one by one."""
    backoff: Backoff = field(default_factory=lambda: Backoff(first=0.5, ceiling=30.0))


class Informer(Generic[R]):
    """Fills and refreshes one cache; `run` it as a task, and wait for `synced` before you trust it."""

    def __init__(
        self,
        client: Client,
        resource: Resource,
        shape: Shape[R],
        *,
        scope: Scope | None = None,
        indexes: Mapping[str, Index[R]] | None = None,
        patience: Patience | None = None,
        breaks: Breaks | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.cache: Cache[R] = Cache(indexes)
        self._client = client
        self._resource = resource
        self._shape = shape
        self._scope = scope or Scope()
        self._patience = patience or Patience()
        self._breaks = breaks or Breaks()
        self._rng = rng or random.Random()  # noqa: S311 - jitter
        self._decoder = EventDecoder(shape)
        self._pages = PageDecoder(resource, shape)
        self._version: str | None = None
        self._is_open = False
        self._fell_silent = False
        self._streams_lists = True
        self._knows_streaming = True
        self._page_size = _PAGE_SIZE
        self._synced = asyncio.Event()
        self._answered = asyncio.Event()
        self._name = self._scope.called or str(resource)
        self._heard = time.monotonic()
        self.trouble: KubeError | None = None
        """Why the cache may be behind or empty: what broke last, until a connection is made again."""

    async def synced(self, timeout: float | None = None) -> None:
        """Wait until the cache has held everything the server had; TimeoutError when that takes too long."""
        async with asyncio.timeout(timeout):
            await self._synced.wait()

    async def answered(self) -> None:
        """Wait until it is synced or refused, for what a server need not have or grant; or has had trouble for long."""
        await self._answered.wait()

    @property
    def is_synced(self) -> bool:
        return self._synced.is_set()

    def forget(self) -> None:
        """Drop everything, as the server no longer has the resource; not while it runs. The next run lists anew."""
        self._version = None
        self._synced.clear()
        self._answered.clear()
        self.trouble = None
        self.cache.keep_only(frozenset())

    async def run(self) -> Never:
        """Follow the server until cancelled."""
        self._heard = time.monotonic()
        self._report_lag()
        try:
            await self._follow_on()
        finally:  # who follows nothing, as where the server no longer has it, lags behind nothing
            _LAG.remove(self._name)
            _RECORDS.remove(self._name)

    def _report_lag(self) -> None:
        _LAG.labels(self._name).set_function(lambda: time.monotonic() - self._heard)

    async def _follow_on(self) -> Never:
        failures = tries = 0
        clock = asyncio.get_running_loop().time
        started = clock()
        while True:
            began = clock()
            self._is_open = False
            try:
                await self._follow()
                # A watch that ends at once did not help; come back more and more slowly.
                failures = failures + 1 if clock() - began < 1.0 else 0
            except Gone:
                log.info("informer.list_again", resource=self._name, last_version=self._version)
                if (
                    self._version is None
                ):  # a list took too long to be read page by page: the next has to come at once
                    self._page_size = 0
                self._version = None
                failures += 1
            except KubeError as error:
                if isinstance(error, TimedOut) and self._version and self._is_open:
                    # Where nothing changes some servers say nothing at all: to ask anew costs two requests.
                    log.debug("informer.quiet", resource=self._name)
                    self._fell_silent = True
                    failures = 0
                    continue
                failures = failures + 1 if clock() - began < self._patience.silence else 1
                _FAILURES.labels(self._name, type(error).__name__).inc()
                # What is refused may stay so for ever: that is told once.
                is_news = self.trouble is None or describe(self.trouble) != describe(error)
                self.trouble = error
                tries += 1
                if not error.transient or tries >= _TRIES or clock() - started >= _LONG:
                    self._answered.set()
                    if not self.is_synced:
                        # It never followed anything that it could be behind of, as a kind that the rights do not grant:
                        # `trouble` says why. A growing lag would raise an alert for ever.
                        _LAG.remove(self._name)
                if is_news:
                    self._breaks.tell(self._name, error)
                log.debug("informer.tries_again", resource=self._name, failures=failures)
            if failures:
                await asyncio.sleep(self._patience.backoff.delay(failures, rng=self._rng))

    async def _follow(self) -> None:
        """One connection's worth: what is missing is listed first."""
        if self._version is not None and self._fell_silent:
            await self._forget_what_is_to_come(self._version)
            self._fell_silent = False
        if self._version is not None:
            await self._watch({"resourceVersion": self._version})
            return
        _LISTS.labels(self._name).inc()
        if self._streams_lists:
            try:
                await self._watch({"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"})
            except (BadRequest, Invalid, TimedOut) as error:
                if self._version is not None:
                    raise
                log.info("informer.reads_pages", resource=self._name, reason=describe(error))
                self._streams_lists = False
                # One that only took too long may do better next time; the pages will come in any case.
                self._knows_streaming = isinstance(error, TimedOut)
                if self._knows_streaming:
                    raise
            else:
                return
        await self._list_pages()

    async def _forget_what_is_to_come(self, version: str) -> None:
        """Who asks for what comes after a version that the server has yet to reach is told nothing until it has."""
        scope = self._scope
        pages = self._client.pages(
            self._resource,
            namespace=scope.namespace,
            labels=scope.labels,
            fields=scope.fields,
            accept=self._shape.accept_list,
            limit=1,
        )
        _, present = self._pages.decode(await anext(pages))
        if 0 < version_number(present) < version_number(version):
            log.warning(
                "informer.server_went_back", resource=self._name, last_version=version, present=present
            )
            self._version = None

    async def _watch(self, start: Mapping[str, str]) -> None:
        # The uids of a list under way; None once everything the server has is in the cache.
        listed: set[str] | None = set() if self._version is None else None
        params = {
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(int(self._rng.uniform(*self._patience.watch_lasts))),
            **selectors(self._scope.labels, self._scope.fields),
            **start,
        }
        cache, fold, events = self.cache, self._shape.fold, _EVENTS.labels(self._name)
        async with self._client.watch(
            self._resource,
            namespace=self._scope.namespace,
            params=params,
            accept=self._shape.accept,
            silence=self._patience.silence,
            gather=self._patience.gather,
        ) as chunks:
            self.trouble = None
            self._is_open = True
            self._report_lag()
            async for lines in whole_lines(chunks):
                self._heard = time.monotonic()
                batch = self._decoder.decode(lines)
                for event in batch:
                    if event.type == "BOOKMARK":
                        if listed is not None and _LIST_IS_OVER in bytes(event.object.metadata.annotations):
                            self._finish_list(listed)
                            listed = None
                        continue
                    if event.type == "DELETED":
                        cache.remove(event.object.metadata)
                        continue
                    try:
                        record = fold(event.object)
                    except ValueError as error:
                        ignore(self._name, event.object, error)
                        # What was known of it is outdated; a list would leave it out as well.
                        cache.remove(event.object.metadata)
                        continue
                    cache.put(record, listed=listed is not None)
                    if listed is not None:
                        listed.add(record.uid)
                if listed is None and batch:
                    self._version = batch[-1].object.metadata.resource_version
                events.inc(len(batch))
                _RECORDS.labels(self._name).set(len(cache))

    async def _list_pages(self) -> None:
        scope, cache = self._scope, self.cache
        listed: set[str] = set()
        version = ""
        async for raw in self._client.pages(
            self._resource,
            namespace=scope.namespace,
            labels=scope.labels,
            fields=scope.fields,
            accept=self._shape.accept_list,
            limit=self._page_size,
            consistent=True,
        ):
            self._heard = time.monotonic()
            records, version = self._pages.decode(raw)
            for record in records:
                cache.put(record, listed=True)
                listed.add(record.uid)
        self._page_size = _PAGE_SIZE
        self._finish_list(listed)
        self._report_lag()
        self._streams_lists = self._knows_streaming
        self._version = version
        self.trouble = None

    def _finish_list(self, listed: set[str]) -> None:
        self.cache.keep_only(listed)
        _RECORDS.labels(self._name).set(len(self.cache))
        self._synced.set()
        self._answered.set()
