"""Decide which Events to write: repeated Events are counted, and the writes for each object are limited.

This module is pure: times are passed in, and `event_recorder` writes. Memory is bounded: a series that was not
repeated for a while, or the oldest if there are too many, is dropped, and a later occurrence starts a new series.
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
    """The object that an Event is about, with its uid, which `kubectl describe` searches for."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    field_path: str = ""


class EventKey(NamedTuple):
    """The fields that two occurrences of the same Event share."""

    regarding: ObjectReference
    type: EventType
    reason: str
    message: str
    action: str
    related: ObjectReference | None


@dataclass(frozen=True, slots=True)
class CorrelatorOptions:
    """The limits of the correlator; times in seconds. The defaults are those of Kubernetes' own components."""

    series_window: float = 600.0
    """The time within which a repeated Event counts as the same."""
    rewrite_interval: float = 5.0
    """The least time between two writes of the count of an Event."""
    burst: int = 25
    """The number of writes for one object that are allowed at once."""
    token_interval: float = 300.0
    """The time after which one more write for an object is allowed."""
    max_tracked: int = 4096
    """The maximum number of Events, and of objects, that are remembered."""
    max_queued: int = 1000
    """The maximum number of recorded Events that wait to be processed; more are dropped."""


@dataclass(slots=True)
class EventSeries:
    """The occurrences of one Event, and the number that the API server knows about."""

    key: EventKey
    name: str
    first: datetime
    last: datetime
    count: int = 0
    written: int = 0
    last_recorded_at: float = 0.0
    rewrite_at: float = 0.0


class EventCorrelator:
    """The recent Events, and those among them that must be written."""

    def __init__(self, options: CorrelatorOptions) -> None:
        self._options = options
        self._series: OrderedDict[EventKey, EventSeries] = OrderedDict()  # the latest last
        self._to_write: DelayHeap[EventKey] = DelayHeap()
        self._tokens: OrderedDict[ObjectReference, float] = OrderedDict()  # the time of the next token

    def __len__(self) -> int:
        return len(self._series)

    @property
    def next_time(self) -> float | None:
        """The time at which the next write is due."""
        return self._to_write.next_time

    def record(self, key: EventKey, at: datetime, now: float) -> bool:
        """Count an occurrence; return False if its object has had too many writes already."""
        while self._series and self._oldest().last_recorded_at <= now - self._options.series_window:
            self._forget_oldest()
        series = self._series.get(key)
        if series is None:
            if self._seconds_until_token(key.regarding, now):
                return False
            self._spend_token(key.regarding, now)
            series = self._series[key] = EventSeries(
                key, _make_event_name(key.regarding.name), first=at, last=at
            )
            if len(self._series) > self._options.max_tracked:
                self._forget_oldest()
        series.count += 1
        series.last = at
        series.last_recorded_at = now
        self._series.move_to_end(key)
        self._to_write.put(key, max(now, series.rewrite_at))
        return True

    def next_due(self, now: float) -> EventSeries | None:
        """Return the series to write next, until `mark_written`; a series whose object has no tokens is postponed."""
        while (key := self._to_write.first_due(now)) is not None:
            series = self._series[key]
            wait = (
                self._seconds_until_token(key.regarding, now) if series.written else 0.0
            )  # the first write was paid for when it was recorded
            if not wait:
                return series
            self._to_write.drop(key)
            self._to_write.put(key, now + wait)
        return None

    def mark_written(self, series: EventSeries, now: float) -> None:
        """Note that the series was written in its current state, or cannot be written."""
        if series.written:
            self._spend_token(series.key.regarding, now)
        series.written = series.count
        series.rewrite_at = now + self._options.rewrite_interval
        self._to_write.drop(series.key)

    def make_all_due(self, now: float) -> None:
        """Make everything unwritten due now."""
        for key, series in self._series.items():
            if series.count > series.written:
                self._to_write.put(key, now)

    def _oldest(self) -> EventSeries:
        return next(iter(self._series.values()))

    def _forget_oldest(self) -> None:
        key, _ = self._series.popitem(last=False)
        self._to_write.drop(key)

    def _seconds_until_token(self, regarding: ObjectReference, now: float) -> float:
        """Return the seconds until this object may have another write."""
        return max(0.0, self._next_token(regarding, now) - now)

    def _spend_token(self, regarding: ObjectReference, now: float) -> None:
        self._tokens[regarding] = self._next_token(regarding, now) + self._options.token_interval
        self._tokens.move_to_end(regarding)
        if len(self._tokens) > self._options.max_tracked:
            self._tokens.popitem(last=False)

    def _next_token(self, regarding: ObjectReference, now: float) -> float:
        """Return the time of the object's next token; a full bucket has its first token in the past."""
        full_since = now - (self._options.burst - 1) * self._options.token_interval
        return max(full_since, self._tokens.get(regarding, full_since))


def _make_event_name(object_name: str) -> str:
    """Return a unique name for an Event; it starts with the object's name if that is allowed."""
    unique = uuid.uuid4().hex[:16]
    return (
        f"{object_name}.{unique}" if len(object_name) < 236 and _SUBDOMAIN.fullmatch(object_name) else unique
    )
