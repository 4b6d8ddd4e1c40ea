"""Compare a cache with the server, a page of the list at a time, to find events that the cache has missed.

A watch is reliable, but a proxy, a defect or a restored backup can lose an event; nothing would ever tell. Each check
compares the next page of the list, so the work stays small and every object has its turn. A page is the state at one
version, and the cache may be a moment behind or ahead of it. Therefore a difference counts only after the watch has
passed that version, and a missing object only if the server still has it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Generic

import structlog
from prometheus_client import Counter

from trimtab.kube.cache.list_pages import PageDecoder
from trimtab.kube.cache.projection import CachedObject, Projection, R, parse_resource_version
from trimtab.kube.cache.store import Cache
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.resources import Resource

log = structlog.get_logger(__name__)

PAGE_SIZE = 500
"""The objects that one check compares."""
_MAX_CONFIRMED = 5
"""The differences that are confirmed one by one; a single one is enough for a repair."""

_VERIFIED = Counter(
    "trimtab_informer_verified_total", "Objects of the server that were compared with the cache", ["resource"]
)
_DRIFT = Counter(
    "trimtab_informer_drift_total", "Comparisons that found an event that the cache had missed", ["resource"]
)


class CacheVerifier(Generic[R]):
    """Compares one cache with the server; `check` returns whether they differ."""

    def __init__(
        self,
        client: Client,
        resource: Resource,
        projection: Projection[R],
        cache: Cache[R],
        *,
        namespace: str | None,
        labels: str,
        fields: str,
        name: str,
        passed: Callable[[int], Awaitable[bool]],
        page_size: int = PAGE_SIZE,
    ) -> None:
        self._client = client
        self._resource = resource
        self._accept = projection.accept_list
        self._decoder = PageDecoder(resource, projection)
        self._cache = cache
        self._namespace, self._labels, self._fields = namespace, labels, fields
        self._name = name
        self._passed = passed
        """Waits until the watch has passed a version; returns False if that takes too long."""
        self._page_size = page_size
        self._pages = self._list()
        self._previous_key = ""
        self._version = 0

    async def check(self) -> bool:
        """Compare the next page; return True if the cache has missed an event."""
        try:
            raw = await anext(self._pages)
        except StopAsyncIteration:
            # Objects after the last page may be in the cache only: their deletions were missed.
            if await self._compare([], following=None):
                return True
            self.restart()
            raw = await anext(self._pages)
        except BaseException:
            self.restart()  # an iteration that failed has ended
            raise
        records, version = self._decoder.decode(raw)
        self._version = parse_resource_version(version)
        _VERIFIED.labels(self._name).inc(len(records))
        if not records:
            return False
        following = _key(records[-1])
        found = await self._compare(records, following=following)
        self._previous_key = following
        return found

    def restart(self) -> None:
        """Begin again with the first page."""
        self._pages, self._previous_key, self._version = self._list(), "", 0

    def _list(self) -> AsyncIterator[bytes]:
        return self._client.list_pages(
            self._resource,
            namespace=self._namespace,
            labels=self._labels,
            fields=self._fields,
            accept=self._accept,
            limit=self._page_size,
        )

    async def _compare(self, records: Sequence[R], *, following: str | None) -> bool:
        """Compare the records of a page, which covers the keys after the previous page up to `following`."""
        version, after = self._version, self._previous_key
        missing = [record for record in records if self._misses(record)]
        listed = {_key(record) for record in records}
        extra = [
            record
            for record in self._cache.select(self._namespace)
            if after < (key := _key(record)) and (following is None or key <= following)
            if key not in listed and 0 < record.version <= version
        ]
        if not version or not (missing or extra) or not await self._passed(version):
            return False
        # What changed before that version is in the cache by now, if its event has come.
        drifted = [_key(each) for each in extra if self._cache.get(each.name, each.namespace) is each]
        for record in filter(self._misses, missing[:_MAX_CONFIRMED]):
            is_outdated = self._cache.get(record.name, record.namespace) is not None
            if is_outdated or await self._still_exists(record):
                drifted.append(_key(record))
        if drifted:
            _DRIFT.labels(self._name).inc()
            log.warning("informer.drift_found", resource=self._name, objects=sorted(drifted)[:_MAX_CONFIRMED])
        return bool(drifted)

    def _misses(self, record: R) -> bool:
        cached = self._cache.get(record.name, record.namespace)
        return cached is None or cached.version < record.version

    async def _still_exists(self, record: R) -> bool:
        """Return whether the server has the very object, which may have been deleted since the page was read."""
        fields = [self._fields, f"metadata.name={record.name}"]
        async for raw in self._client.list_pages(
            self._resource,
            namespace=record.namespace or None,
            labels=self._labels,
            fields=",".join(filter(None, fields)),
            accept=self._accept,
        ):
            if any(found.uid == record.uid for found in self._decoder.decode(raw)[0]):
                return True
        return False


def _key(record: CachedObject) -> str:
    """Return a key that sorts as the server's list does."""
    return f"{record.namespace}/{record.name}"
