"""Which events are worth a write: the same said again is counted, and an object that says too much is held back.

Pure: times are passed in, and writing is left to `events`. Memory is bounded: what was not said again for
a while, or longest ago when there is too much, is forgotten, and starts a new series should it come back.
"""

from __future__ import annotations

import re
import uuid
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

import msgspec

from trimtab.kube.runtime.delay_heap import DelayHeap

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")

EventType = Literal["Normal", "Warning"]


class ObjectReference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """The object that an event is about. With its uid, for `kubectl describe` looks for that."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    field_path: str = ""


class EventKey(NamedTuple):
    """What makes two events the same."""

    regarding: ObjectReference
    type: EventType
    reason: str
    message: str
    action: str
    related: ObjectReference | None


@dataclass(frozen=True, slots=True)
class CorrelatorOptions:
    """How much is held back; times in seconds. The figures are those of Kubernetes' own components."""

    series_window: float = 600.0
    """Said again within this time, an event counts as the same."""
    rewrite_interval: float = 5.0
    """So often at most the count of an event is brought up to date."""
    burst: int = 25
    """So many writes at once for one object, then ..."""
    token_interval: float = 300.0
    """... one in this time."""
    max_tracked: int = 4096
    """So many events, and so many objects, are remembered."""
    max_queued: int = 1000
    """So many recorded events may wait to be looked at; more are dropped."""


@dataclass(slots=True)
class EventSeries:
    """The occurrences of one event, and how many of them the API server knows of."""

    key: EventKey
    name: str
    first: datetime
    last: datetime
    count: int = 0
    written: int = 0
    last_recorded_at: float = 0.0
    rewrite_at: float = 0.0


class EventCorrelator:
    """What was said lately, and what of it is still to be written."""

    def __init__(self, options: CorrelatorOptions) -> None:
        self._options = options
        self._series: OrderedDict[EventKey, EventSeries] = OrderedDict()  # the latest last
        self._to_write: DelayHeap[EventKey] = DelayHeap()
        self._tokens: OrderedDict[ObjectReference, float] = OrderedDict()  # when the next one comes

    def __len__(self) -> int:
        return len(self._series)

    @property
    def next_time(self) -> float | None:
        """When the next write is due."""
        return self._to_write.next_time

    def record(self, said: EventKey, at: datetime, now: float) -> bool:
        """Note that this was said; False when its object has said too much already."""
        while self._series and self._oldest().last_recorded_at <= now - self._options.series_window:
            self._forget_oldest()
        series = self._series.get(said)
        if series is None:
            if self._seconds_until_token(said.regarding, now):
                return False
            self._spend_token(said.regarding, now)
            series = self._series[said] = EventSeries(
                said, _make_event_name(said.regarding.name), first=at, last=at
            )
            if len(self._series) > self._options.max_tracked:
                self._forget_oldest()
        series.count += 1
        series.last = at
        series.last_recorded_at = now
        self._series.move_to_end(said)
        self._to_write.put(said, max(now, series.rewrite_at))
        return True

    def next_due(self, now: float) -> EventSeries | None:
        """The series to write next, until it is reported `done`; one whose object must wait is put off."""
        while (said := self._to_write.first_due(now)) is not None:
            series = self._series[said]
            wait = (
                self._seconds_until_token(said.regarding, now) if series.written else 0.0
            )  # its first is paid for
            if not wait:
                return series
            self._to_write.drop(said)
            self._to_write.put(said, now + wait)
        return None

    def mark_written(self, series: EventSeries, now: float) -> None:
        """The series is written as it is, or cannot be."""
        if series.written:
            self._spend_token(series.key.regarding, now)
        series.written = series.count
        series.rewrite_at = now + self._options.rewrite_interval
        self._to_write.drop(series.key)

    def make_all_due(self, now: float) -> None:
        """Let everything unwritten be due now."""
        for said, series in self._series.items():
            if series.count > series.written:
                self._to_write.put(said, now)

    def _oldest(self) -> EventSeries:
        return next(iter(self._series.values()))

    def _forget_oldest(self) -> None:
        said, _ = self._series.popitem(last=False)
        self._to_write.drop(said)

    def _seconds_until_token(self, about: ObjectReference, now: float) -> float:
        """Seconds until this object may have another write."""
        return max(0.0, self._next_token(about, now) - now)

    def _spend_token(self, about: ObjectReference, now: float) -> None:
        self._tokens[about] = self._next_token(about, now) + self._options.token_interval
        self._tokens.move_to_end(about)
        if len(self._tokens) > self._options.max_tracked:
            self._tokens.popitem(last=False)

    def _next_token(self, about: ObjectReference, now: float) -> float:
        """When it comes or came; a full bucket's first came as long ago as it took to fill."""
        full_since = now - (self._options.burst - 1) * self._options.token_interval
        return max(full_since, self._tokens.get(about, full_since))


def _make_event_name(about: str) -> str:
    """A name that no other event has; it shows the object's where that can be part of a name."""
    unique = uuid.uuid4().hex[:16]
    return f"{about}.{unique}" if len(about) < 236 and _SUBDOMAIN.fullmatch(about) else unique
