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

from trimtab.kube.cache.failure_aggregator import FailureAggregator
from trimtab.kube.cache.projection import Projection, R, parse_resource_version
from trimtab.kube.cache.store import Cache, Index
from trimtab.kube.cache.watch import WatchEventDecoder, split_lines
from trimtab.kube.errors import BadRequest, Gone, Invalid, KubeError, TimedOut, describe
from trimtab.kube.rest.client import Client, selector_params
from trimtab.kube.rest.list_pages import PageDecoder, log_ignored
from trimtab.kube.rest.resources import Resource
from trimtab.kube.rest.retry import Backoff

log = structlog.get_logger(__name__)

_EVENTS = Counter("trimtab_informer_events_total", "Watch events taken in", ["resource"])
_LISTS = Counter("trimtab_informer_lists_total", "Full lists, the first one included", ["resource"])
_FAILURES = Counter("trimtab_informer_failures_total", "Lists and watches that broke", ["resource", "error"])
_RECORDS = Gauge("trimtab_informer_records", "Records in the cache", ["resource"])
_LAG = Gauge("trimtab_informer_lag_seconds", "Since the server was last heard", ["resource"])

_GIVE_UP_ATTEMPTS, _GIVE_UP_SECONDS = 6, 30.0
"""So often, or for so many seconds, may fail what passes by itself, until that counts as an answer."""

_PAGE_SIZE = 500
_INITIAL_EVENTS_END = b'"k8s.io/initial-events-end":"true"'


@dataclass(frozen=True, slots=True)
class Scope:
    """Which objects to watch: all, or those of a namespace, with these labels or fields."""

    namespace: str | None = None
    labels: str = ""
    fields: str = ""
    display_name: str = ""
    """What logs and metrics call them; else by their resource, of which there may be another informer."""


@dataclass(frozen=True, slots=True)
class WatchTimeouts:
    """How long an informer waits for what, in seconds."""

    idle_timeout: float = 70.0
    """Without a byte for so long (the server sends a bookmark a minute) a connection counts as dead."""
    watch_duration: tuple[float, float] = (300.0, 600.0)
    """The server ends a watch after a random time in this range, so that load spreads over replicas."""
    batch_window: float = 0.1
    """After a few events wait so long for more: many at once cost a fraction of one by one."""
    backoff: Backoff = field(default_factory=lambda: Backoff(first=0.5, ceiling=30.0))


class Informer(Generic[R]):
    """Fills and refreshes one cache; `run` it as a task, and wait for `synced` before you trust it."""

    def __init__(
        self,
        client: Client,
        resource: Resource,
        projection: Projection[R],
        *,
        scope: Scope | None = None,
        indexes: Mapping[str, Index[R]] | None = None,
        timeouts: WatchTimeouts | None = None,
        failures: FailureAggregator | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.cache: Cache[R] = Cache(indexes)
        self._client = client
        self._resource = resource
        self._projection = projection
        self._scope = scope or Scope()
        self._timeouts = timeouts or WatchTimeouts()
        self._failures = failures or FailureAggregator()
        self._rng = rng or random.Random()  # noqa: S311 - jitter
        self._event_decoder = WatchEventDecoder(projection)
        self._page_decoder = PageDecoder(resource, projection)
        self._version: str | None = None
        self._is_connected = False
        self._idled_out = False
        self._use_streaming_list = True
        self._supports_streaming_list = True
        self._page_size = _PAGE_SIZE
        self._synced = asyncio.Event()
        self._synced_or_failed = asyncio.Event()
        self._name = self._scope.display_name or str(resource)
        self._last_heard_at = time.monotonic()
        self.last_error: KubeError | None = None
        """Why the cache may be behind or empty: what broke last, until a connection is made again."""

    async def wait_synced(self, timeout: float | None = None) -> None:
        """Wait until the cache has held everything the server had; TimeoutError when that takes too long."""
        async with asyncio.timeout(timeout):
            await self._synced.wait()

    async def wait_synced_or_failed(self) -> None:
        """Wait until it is synced or refused, for what a server need not have or grant; or has had trouble for long."""
        await self._synced_or_failed.wait()

    @property
    def is_synced(self) -> bool:
        return self._synced.is_set()

    def reset(self) -> None:
        """Drop everything, as the server no longer has the resource; not while it runs. The next run lists anew."""
        self._version = None
        self._synced.clear()
        self._synced_or_failed.clear()
        self.last_error = None
        self.cache.keep_only(frozenset())

    async def run(self) -> Never:
        """Follow the server until cancelled."""
        self._last_heard_at = time.monotonic()
        self._report_lag()
        try:
            await self._list_and_watch_forever()
        finally:  # who follows nothing, as where the server no longer has it, lags behind nothing
            _LAG.remove(self._name)
            _RECORDS.remove(self._name)

    def _report_lag(self) -> None:
        _LAG.labels(self._name).set_function(lambda: time.monotonic() - self._last_heard_at)

    async def _list_and_watch_forever(self) -> Never:
        failures = tries = 0
        clock = asyncio.get_running_loop().time
        started = clock()
        while True:
            began = clock()
            self._is_connected = False
            try:
                await self._list_and_watch()
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
                if isinstance(error, TimedOut) and self._version and self._is_connected:
                    # Where nothing changes some servers say nothing at all: to ask anew costs two requests.
                    log.debug("informer.quiet", resource=self._name)
                    self._idled_out = True
                    failures = 0
                    continue
                failures = failures + 1 if clock() - began < self._timeouts.idle_timeout else 1
                _FAILURES.labels(self._name, type(error).__name__).inc()
                # What is refused may stay so for ever: that is told once.
                is_news = self.last_error is None or describe(self.last_error) != describe(error)
                self.last_error = error
                tries += 1
                if not error.transient or tries >= _GIVE_UP_ATTEMPTS or clock() - started >= _GIVE_UP_SECONDS:
                    self._synced_or_failed.set()
                    if not self.is_synced:
                        # It never followed anything that it could be behind of, as a kind that the rights do not grant:
                        # `trouble` says why. A growing lag would raise an alert for ever.
                        _LAG.remove(self._name)
                if is_news:
                    self._failures.report(self._name, error)
                log.debug("informer.tries_again", resource=self._name, failures=failures)
            if failures:
                await asyncio.sleep(self._timeouts.backoff.delay(failures, rng=self._rng))

    async def _list_and_watch(self) -> None:
        """One connection's worth: what is missing is listed first."""
        if self._version is not None and self._idled_out:
            await self._reset_if_server_went_back(self._version)
            self._idled_out = False
        if self._version is not None:
            await self._watch({"resourceVersion": self._version})
            return
        _LISTS.labels(self._name).inc()
        if self._use_streaming_list:
            try:
                await self._watch({"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"})
            except (BadRequest, Invalid, TimedOut) as error:
                if self._version is not None:
                    raise
                log.info("informer.reads_pages", resource=self._name, reason=describe(error))
                self._use_streaming_list = False
                # One that only took too long may do better next time; the pages will come in any case.
                self._supports_streaming_list = isinstance(error, TimedOut)
                if self._supports_streaming_list:
                    raise
            else:
                return
        await self._list_pages()

    async def _reset_if_server_went_back(self, version: str) -> None:
        """Who asks for what comes after a version that the server has yet to reach is told nothing until it has."""
        scope = self._scope
        pages = self._client.list_pages(
            self._resource,
            namespace=scope.namespace,
            labels=scope.labels,
            fields=scope.fields,
            accept=self._projection.accept_list,
            limit=1,
        )
        _, present = self._page_decoder.decode(await anext(pages))
        if 0 < parse_resource_version(present) < parse_resource_version(version):
            log.warning(
                "informer.server_went_back", resource=self._name, last_version=version, present=present
            )
            self._version = None

    async def _watch(self, start: Mapping[str, str]) -> None:
        # The uids of a list under way; None once everything the server has is in the cache.
        listed: set[str] | None = set() if self._version is None else None
        params = {
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(int(self._rng.uniform(*self._timeouts.watch_duration))),
            **selector_params(self._scope.labels, self._scope.fields),
            **start,
        }
        cache, fold, events = self.cache, self._projection.project, _EVENTS.labels(self._name)
        async with self._client.watch(
            self._resource,
            namespace=self._scope.namespace,
            params=params,
            accept=self._projection.accept,
            idle_timeout=self._timeouts.idle_timeout,
            batch_window=self._timeouts.batch_window,
        ) as chunks:
            self.last_error = None
            self._is_connected = True
            self._report_lag()
            async for lines in split_lines(chunks):
                self._last_heard_at = time.monotonic()
                batch = self._event_decoder.decode(lines)
                for event in batch:
                    if event.type == "BOOKMARK":
                        if listed is not None and _INITIAL_EVENTS_END in bytes(
                            event.object.metadata.annotations
                        ):
                            self._finish_list(listed)
                            listed = None
                        continue
                    if event.type == "DELETED":
                        cache.remove(event.object.metadata)
                        continue
                    try:
                        record = fold(event.object)
                    except ValueError as error:
                        log_ignored(self._name, event.object, error)
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
        async for raw in self._client.list_pages(
            self._resource,
            namespace=scope.namespace,
            labels=scope.labels,
            fields=scope.fields,
            accept=self._projection.accept_list,
            limit=self._page_size,
            consistent=True,
        ):
            self._last_heard_at = time.monotonic()
            records, version = self._page_decoder.decode(raw)
            for record in records:
                cache.put(record, listed=True)
                listed.add(record.uid)
        self._page_size = _PAGE_SIZE
        self._finish_list(listed)
        self._report_lag()
        self._use_streaming_list = self._supports_streaming_list
        self._version = version
        self.last_error = None

    def _finish_list(self, listed: set[str]) -> None:
        self.cache.keep_only(listed)
        _RECORDS.labels(self._name).set(len(self.cache))
        self._synced.set()
        self._synced_or_failed.set()
