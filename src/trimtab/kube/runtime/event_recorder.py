"""Write Events that tell users what we did to an object and why.

Recording costs the caller nothing and cannot fail; `event_correlator` decides what to write, and a background task
writes it. Events are for people and may be lost: if too many occur at once, if the API server is unavailable for
long, or if the process ends without a `flush`. The store keeps what must last.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Never

import msgspec
import structlog
from prometheus_client import Counter

from trimtab.api.fields import format_micro_time
from trimtab.kube.errors import KubeError, describe
from trimtab.kube.rest.client import Client, Object
from trimtab.kube.rest.resources import EVENTS
from trimtab.kube.runtime.event_correlator import (
    CorrelatorOptions,
    EventCorrelator,
    EventKey,
    EventSeries,
    EventType,
    ObjectReference,
)

log = structlog.get_logger(__name__)

_WRITTEN = Counter(
    "trimtab_events_written_total", "Events written, including updates of their count", ["type"]
)
_DROPPED = Counter("trimtab_events_dropped_total", "Events that were not written, by reason", ["reason"])

# The limits of the API server, which counts the bytes of a note.
_NOTE_BYTES = 1024
_NAME_LENGTH = 128
_CAMEL_CASE = re.compile(r"[A-Z][A-Za-z0-9]*")


class EventRecorder:
    """Records Events on behalf of one component; `run` it as a task."""

    def __init__(
        self,
        client: Client,
        *,
        component: str,
        instance: str,
        now: Callable[[], datetime],
        options: CorrelatorOptions | None = None,
    ) -> None:
        self._client = client
        self._component = component
        self._instance = instance[:_NAME_LENGTH]
        self._now = now
        self._options = options or CorrelatorOptions()
        self._correlator = EventCorrelator(self._options)
        self._queue: deque[tuple[EventKey, datetime]] = deque()
        self._recorded = asyncio.Event()
        self._writing = asyncio.Lock()

    def record(
        self,
        regarding: ObjectReference,
        *,
        type: EventType,  # noqa: A002 - the Kubernetes term
        reason: str,
        message: str,
        action: str,
        related: ObjectReference | None = None,
    ) -> None:
        """Record what happened to an object: the reason and the action as CamelCase words, and a sentence for
        people.
        """
        if not _is_camel_case(reason) or not _is_camel_case(action):
            _DROPPED.labels("invalid").inc()
            log.error("events.invalid", reason=reason, action=action, fix="make both a CamelCase word")
        elif len(self._queue) >= self._options.max_queued:
            _DROPPED.labels("queue_full").inc()
        else:
            self._queue.append(
                (EventKey(regarding, type, reason, _truncate_note(message), action, related), self._now())
            )
            self._recorded.set()

    async def run(self) -> Never:
        """Write recorded Events until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._correlator.next_time):
                    await self._recorded.wait()
            await self._write_due()

    async def flush(self) -> None:
        """Write what is recorded so far without delay, as far as the limits of its objects allow.

        At shutdown, put a timeout around it: the API server may be unavailable.
        """
        await self._write_due(flush=True)

    async def _write_due(self, *, flush: bool = False) -> None:
        async with self._writing:
            now = asyncio.get_running_loop().time()
            self._drain_queue(now)
            if flush:
                self._correlator.make_all_due(now)
            while (series := self._correlator.next_due(now)) is not None:
                await self._write(series)
                self._correlator.mark_written(series, now)

    def _drain_queue(self, now: float) -> None:
        self._recorded.clear()
        while self._queue:
            if not self._correlator.record(*self._queue.popleft(), now):
                _DROPPED.labels("rate_limited").inc()

    async def _write(self, series: EventSeries) -> None:
        try:
            # Apply creates or updates the Event as needed, and may be repeated.
            await self._client.apply(EVENTS, self._build_event(series), force=True)
        except KubeError as error:
            _DROPPED.labels(type(error).__name__).inc()
            log.warning(
                "events.dropped",
                regarding=_format_reference(series.key.regarding),
                reason=series.key.reason,
                error=describe(error),
            )
        except Exception:
            _DROPPED.labels("unexpected").inc()
            log.exception(
                "events.dropped", regarding=_format_reference(series.key.regarding), reason=series.key.reason
            )
        else:
            _WRITTEN.labels(series.key.type).inc()

    def _build_event(self, series: EventSeries) -> Object:
        key = series.key
        event: Object = {
            # Events of cluster-scoped objects are in this namespace.
            "metadata": {"name": series.name, "namespace": key.regarding.namespace or "default"},
            "eventTime": format_micro_time(series.first),
            "reportingController": self._component,
            "reportingInstance": self._instance,
            "regarding": msgspec.to_builtins(key.regarding),
            "type": key.type,
            "reason": key.reason,
            "action": key.action,
            "note": key.message,
        }
        if key.related is not None:
            event["related"] = msgspec.to_builtins(key.related)
        if series.count > 1:
            event["series"] = {"count": series.count, "lastObservedTime": format_micro_time(series.last)}
        return event


def _is_camel_case(text: str) -> bool:
    return len(text) <= _NAME_LENGTH and _CAMEL_CASE.fullmatch(text) is not None


def _truncate_note(message: str) -> str:
    encoded = message.encode()
    if len(encoded) <= _NOTE_BYTES:
        return message
    return encoded[: _NOTE_BYTES - len("…".encode())].decode(errors="ignore") + "…"


def _format_reference(reference: ObjectReference) -> str:
    name = f"{reference.namespace}/{reference.name}" if reference.namespace else reference.name
    return f"{reference.kind} {name}"
