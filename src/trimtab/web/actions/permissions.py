"""Cache which workloads a viewer may act on, to show only the allowed buttons.

Answers are cached for a minute, because a history page names many workloads and refreshes with every change. An action
itself is authorized again by `handlers`: the buttons grant nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.web.auth import Access, Viewer

TTL_SECONDS = 60.0
MAX_ENTRIES = 20_000
"""The number of cached answers; beyond it the oldest is dropped."""


class PermissionCache:
    def __init__(self, access: Access, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._access = access
        self._clock = clock
        self._cache: dict[tuple[Viewer, WorkloadKey], tuple[bool, float]] = {}

    async def filter_allowed(self, viewer: Viewer, keys: Iterable[WorkloadKey]) -> frozenset[WorkloadKey]:
        """Return the workloads that the viewer may act on."""
        asked = list(dict.fromkeys(keys))
        answers = await asyncio.gather(*(self._is_allowed(viewer, key) for key in asked))
        return frozenset(key for key, may in zip(asked, answers, strict=True) if may)

    async def _is_allowed(self, viewer: Viewer, key: WorkloadKey) -> bool:
        # Taken out and put back at the end, so that the answer that was not used for longest is dropped first.
        may, until = self._cache.pop((viewer, key), (False, float("-inf")))
        if until <= self._clock():
            may, until = await self._access.may_act(viewer, key), self._clock() + TTL_SECONDS
        while len(self._cache) >= MAX_ENTRIES:
            del self._cache[next(iter(self._cache))]
        self._cache[viewer, key] = may, until
        return may
