"""Keep a cache equal to the server: list once, follow the watch, resume after interruptions.

The first list is streamed (`sendInitialEvents`), so that no page of raw objects is ever in memory; if the server
cannot do that, the list is read in pages. After that every connection resumes from the last version. A new list is
needed only after a 410 (that version was compacted away), if the server has gone back to an older version because
its data was restored from a backup, or if the cache has missed an event, which comparisons with the server find. Objects
that disappeared meanwhile are then reported as deleted. A failure costs time, never correctness: the cache keeps its last
content.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, Never

import structlog
from prometheus_client import Counter, Gauge

from trimtab.aio import task_group
from trimtab.kube.cache.list_pages import PageDecoder, log_ignored
from trimtab.kube.cache.projection import Projection, R, parse_resource_version
from trimtab.kube.cache.store import Cache, Index
from trimtab.kube.cache.verifier import CacheVerifier
from trimtab.kube.cache.watch import WatchEventDecoder, split_lines
from trimtab.kube.errors import BadRequest, Gone, Invalid, KubeError, TimedOut, describe
from trimtab.kube.rest.client import Client, selector_params
from trimtab.kube.rest.resources import Resource
from trimtab.timing import Backoff

log = structlog.get_logger(__name__)

_EVENTS = Counter("trimtab_informer_events_total", "Watch events received", ["resource"])
_LISTS = Counter("trimtab_informer_lists_total", "Full lists, the first one included", ["resource"])
_FAILURES = Counter("trimtab_informer_failures_total", "Lists and watches that failed", ["resource", "error"])
_RECORDS = Gauge("trimtab_informer_records", "Records in the cache", ["resource"])
_LAG = Gauge("trimtab_informer_lag_seconds", "Seconds since the last data from the server", ["resource"])

_GIVE_UP_ATTEMPTS, _GIVE_UP_SECONDS = 6, 30.0
"""The attempts and the seconds after which a transient failure counts as a result for `wait_synced_or_failed`."""

_PAGE_SIZE = 500
_INITIAL_EVENTS_END = b'"k8s.io/initial-events-end":"true"'


@dataclass(frozen=True, slots=True)
class Scope:
    """The objects to watch: all, or those of a namespace, with these labels or fields."""

    namespace: str | None = None
    labels: str = ""
    fields: str = ""
    display_name: str = ""
    """The name in logs and metrics if several informers watch the same resource; the resource's name if empty."""


@dataclass(frozen=True, slots=True)
class WatchTimeouts:
    """The timeouts of an informer, in seconds."""

    idle_timeout: float = 70.0
    """The time without any byte after which a connection counts as dead; the server sends a bookmark every minute."""
    watch_duration: tuple[float, float] = (300.0, 600.0)
    """The range of random durations after which the server ends a watch, so that load spreads over its replicas."""
    batch_window: float = 0.1
    """The time to wait for more events after a few: a batch costs a fraction of single events."""
    backoff: Backoff = field(default_factory=lambda: Backoff(first=0.5, ceiling=30.0))
    verify_interval: float = 300.0
    """The average time between two comparisons of a page of the list with the cache."""


class FailureAggregator:
    """Collects the failures of informers for a moment, and logs them together: an API server that goes away interrupts
    all of them at once.
    """

    def __init__(self, delay: float = 1.0) -> None:
        self._delay = delay
        self._pending: dict[str, dict[str, str]] = {}

    def report(self, resource: str, error: KubeError) -> None:
        if not self._pending:
            asyncio.get_running_loop().call_later(self._delay, self._log_failures)
        # The text of a permanent error names its resource, so group by text; a transient error concerns the server,
        # so group by class.
        cause = type(error).__name__ if error.transient else describe(error)
        self._pending.setdefault(cause, {})[resource] = describe(error)

    def _log_failures(self) -> None:
        found, self._pending = self._pending, {}
        for errors in found.values():
            log.warning("informer.failed", resources=", ".join(errors), error=next(iter(errors.values())))


class Informer(Generic[R]):
    """Fills and refreshes one cache; `run` it as a task, and wait for `wait_synced` before you rely on the cache."""

    def __init__(
        self,
        client: Client,
        resource: Resource,
        projection: Projection[R],
        *,
        scope: Scope | None = None,
        indexes: Mapping[str, Index[R]] | None = None,
        cache: Cache[R] | None = None,
        timeouts: WatchTimeouts | None = None,
        failures: FailureAggregator | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Create the informer; informers of several namespaces may share one cache."""
        self.cache: Cache[R] = cache if cache is not None else Cache(indexes)
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
        self._connection = asyncio.timeout(None)
        self.last_error: KubeError | None = None
        """The last failure, which explains why the cache may be outdated or empty; None once a connection
        succeeds."""

    async def wait_synced(self, timeout: float | None = None) -> None:
        """Wait until the cache has held everything the server had; raise TimeoutError if that takes too long."""
        async with asyncio.timeout(timeout):
            await self._synced.wait()

    async def wait_synced_or_failed(self) -> None:
        """Wait until the cache is synced, or the server rejected the list, or transient failures lasted for long."""
        await self._synced_or_failed.wait()

    @property
    def is_synced(self) -> bool:
        return self._synced.is_set()

    def reset(self) -> None:
        """Drop all records because the server no longer has the resource. Call it only while `run` is not active; the
        next run lists again.
        """
        self._version = None
        self._synced.clear()
        self._synced_or_failed.clear()
        self.last_error = None
        self.cache.keep_only(frozenset(), namespace=self._scope.namespace)

    async def run(self) -> Never:
        """Keep the cache current until cancelled."""
        self._last_heard_at = time.monotonic()
        self._report_lag()
        try:
            async with task_group() as group:
                group.create_task(self._verify_forever())
                await self._list_and_watch_forever()
            raise AssertionError("unreachable")
        finally:  # A stopped informer has no lag: remove its gauges.
            _LAG.remove(self._name)
            _RECORDS.remove(self._name)

    def _count_records(self) -> None:
        namespace = self._scope.namespace
        _RECORDS.labels(self._name).set(
            len(self.cache) if namespace is None else len(self.cache.in_namespace(namespace))
        )

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
                await self._run_connection()
                # A watch that ends at once made no progress: reconnect with back-off.
                failures = failures + 1 if clock() - began < 1.0 else 0
            except Gone:
                log.info("informer.relisting", resource=self._name, last_version=self._version)
                if self._version is None:  # the paged list expired: read the next one in a single page
                    self._page_size = 0
                self._version = None
                failures += 1
            except KubeError as error:
                if isinstance(error, TimedOut) and self._version and self._is_connected:
                    # Some servers send nothing while nothing changes; a new watch costs two requests.
                    log.debug("informer.idle_timeout", resource=self._name)
                    self._idled_out = True
                    failures = 0
                    continue
                failures = failures + 1 if clock() - began < self._timeouts.idle_timeout else 1
                _FAILURES.labels(self._name, type(error).__name__).inc()
                # A rejection may last for ever, so log the same error only once.
                is_news = self.last_error is None or describe(self.last_error) != describe(error)
                self.last_error = error
                tries += 1
                if not error.transient or tries >= _GIVE_UP_ATTEMPTS or clock() - started >= _GIVE_UP_SECONDS:
                    self._synced_or_failed.set()
                    if not self.is_synced:
                        # It never had any data that could be outdated, for example because RBAC does not grant the
                        # kind; `last_error` gives the reason. A growing lag would fire an alert for ever.
                        _LAG.remove(self._name)
                if is_news:
                    self._failures.report(self._name, error)
                log.debug("informer.retrying", resource=self._name, failures=failures)
            if failures:
                await asyncio.sleep(self._timeouts.backoff.delay(failures, rng=self._rng))

    async def _run_connection(self) -> None:
        """Run one connection, which `_relist` may end."""
        try:
            async with asyncio.timeout(None) as self._connection:
                await self._list_and_watch()
        except TimeoutError:
            self._version = None

    async def _verify_forever(self) -> Never:
        """Compare the cache with the server now and then, and list again if it has missed an event."""
        verifier = CacheVerifier(
            self._client,
            self._resource,
            self._projection,
            self.cache,
            namespace=self._scope.namespace,
            labels=self._scope.labels,
            fields=self._scope.fields,
            name=self._name,
            passed=self._wait_passed,
        )
        while True:
            await asyncio.sleep(self._timeouts.verify_interval * self._rng.uniform(0.5, 1.5))
            await self._synced.wait()
            try:
                if await verifier.check():
                    verifier.restart()
                    self._relist()
            except KubeError as error:
                log.debug("informer.not_verified", resource=self._name, error=describe(error))

    async def _wait_passed(self, version: int) -> bool:
        """Wait until the watch has passed a version; return False if that takes longer than its bookmarks."""
        with suppress(TimeoutError):
            async with asyncio.timeout(2 * self._timeouts.idle_timeout):
                # An event for each batch of each informer would cost more than this rare poll.
                while parse_resource_version(self._version or "") < version:  # noqa: ASYNC110
                    await asyncio.sleep(1.0)
                return True
        return False

    def _relist(self) -> None:
        """Begin with a new list, now if there is a connection, which then ends."""
        self._version = None
        # There may be no connection at the moment; the next one begins with a list anyway.
        with suppress(RuntimeError):
            self._connection.reschedule(asyncio.get_running_loop().time())

    async def _list_and_watch(self) -> None:
        """Run one connection: list first if the cache has no version to resume from."""
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
                log.info("informer.listing_in_pages", resource=self._name, reason=describe(error))
                self._use_streaming_list = False
                # After a timeout, streaming may work next time; use pages for now.
                self._supports_streaming_list = isinstance(error, TimedOut)
                if self._supports_streaming_list:
                    raise
            else:
                return
        await self._list_pages()

    async def _reset_if_server_went_back(self, version: str) -> None:
        """Forget the version to resume from if the server is behind it: a watch from a future version would report
        nothing.
        """
        scope = self._scope
        pages = self._client.list_pages(
            self._resource,
            namespace=scope.namespace,
            labels=scope.labels,
            fields=scope.fields,
            accept=self._projection.accept_list,
            limit=1,
        )
        _, current_version = self._page_decoder.decode(await anext(pages))
        if 0 < parse_resource_version(current_version) < parse_resource_version(version):
            log.warning(
                "informer.server_went_back",
                resource=self._name,
                last_version=version,
                current_version=current_version,
            )
            self._version = None

    async def _watch(self, start: Mapping[str, str]) -> None:
        # The uids of the list in progress; None once the cache holds everything the server has.
        listed: set[str] | None = set() if self._version is None else None
        params = {
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(int(self._rng.uniform(*self._timeouts.watch_duration))),
            **selector_params(self._scope.labels, self._scope.fields),
            **start,
        }
        cache, project, events = self.cache, self._projection.project, _EVENTS.labels(self._name)
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
                        record = project(event.object)
                    except (ValueError, RecursionError) as error:
                        log_ignored(self._name, event.object, error)
                        # The cached record is outdated; a list would skip the object as well.
                        cache.remove(event.object.metadata)
                        continue
                    cache.put(record, listed=listed is not None)
                    if listed is not None:
                        listed.add(record.uid)
                # The objects of a streamed list come in any order: to resume from one of their versions would lose
                # others.
                if listed is None and batch:
                    self._version = batch[-1].object.metadata.resource_version
                events.inc(len(batch))
                self._count_records()

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
        self.cache.keep_only(listed, namespace=self._scope.namespace)
        self._count_records()
        self._synced.set()
        self._synced_or_failed.set()
