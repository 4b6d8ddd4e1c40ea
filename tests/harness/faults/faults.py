"""Describe the faults between a client and the API server, and plan when they happen.

Pure: the `faultproxy` makes these happen. A fault comes from a script (`FaultProxy.fail_next`) or from a plan that
draws at random; a plan with the same seed meets the same request with the same fault, whatever else goes on.
"""

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    DELAY = "delay"
    """Added latency: the request waits, then goes through."""
    SLOW = "slow"
    """The answer trickles in."""
    DROP = "drop"
    """The connection is lost before the server saw the request."""
    LOSE_ANSWER = "lose answer"
    """The server did what was asked, and the connection is lost before the answer."""
    TEAR = "tear"
    """The connection is lost in mid-body: a watch in the middle of an event."""
    STATUS = "status"
    """An HTTP error in the server's place."""
    GARBLE = "garble"
    """A page of a middlebox with a status of success."""
    CUT = "cut"
    """A watch's connection is lost between two events."""
    END = "end"
    """A watch ends properly, as by the server's own time-out."""
    GONE_EVENT = "gone event"
    """A watch says in its stream that the resource version is too old, and ends."""
    SILENCE = "silence"
    """The connection stays open and nothing comes any more."""


ON_WATCHES = {Kind.CUT, Kind.END, Kind.GONE_EVENT}
ON_ANSWERS = {Kind.SLOW}

REASONS = {410: "Expired", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}


def failure(code: int) -> dict[str, Any]:
    """The object by which an API server says no."""
    said = {"status": "Failure", "reason": REASONS.get(code, "Unknown"), "code": code}
    return {"apiVersion": "v1", "kind": "Status", "metadata": {}, "message": "by the fault proxy", **said}


@dataclass(frozen=True)
class Asked:
    """A request, with the fields by which a script may distinguish it."""

    method: str
    path: str
    query: Mapping[str, str]

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") in {"1", "true"}


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault, to happen once."""

    kind: Kind
    after: int = 0
    """The number of events that a watch still delivers."""
    seconds: float = 0
    status: int = 0
    retry_after: int | None = None

    @property
    def name(self) -> str:
        """The name under which the fault is counted."""
        return str(self.status) if self.kind is Kind.STATUS else self.kind.value

    def fits(self, asked: Asked) -> bool:
        return self.kind not in (ON_ANSWERS if asked.is_watch else ON_WATCHES)


def delay(seconds: float) -> Fault:
    return Fault(kind=Kind.DELAY, seconds=seconds)


def slow(seconds: float) -> Fault:
    return Fault(kind=Kind.SLOW, seconds=seconds)


def drop() -> Fault:
    return Fault(kind=Kind.DROP)


def lose_answer() -> Fault:
    return Fault(kind=Kind.LOSE_ANSWER)


def tear(*, after: int = 0) -> Fault:
    return Fault(kind=Kind.TEAR, after=after)


def status(code: int, *, retry_after: int | None = None) -> Fault:
    return Fault(kind=Kind.STATUS, status=code, retry_after=retry_after)


def garble() -> Fault:
    return Fault(kind=Kind.GARBLE)


def cut(*, after: int = 0) -> Fault:
    return Fault(kind=Kind.CUT, after=after)


def end(*, after: int = 0) -> Fault:
    return Fault(kind=Kind.END, after=after)


def gone_event(*, after: int = 0) -> Fault:
    return Fault(kind=Kind.GONE_EVENT, after=after)


def silence(*, after: int = 0) -> Fault:
    return Fault(kind=Kind.SILENCE, after=after)


class FaultPlan:
    """Faults at random: each with the share of the requests that it befalls.

    What a fault says of `after` and `seconds` is the most: how much it is, is drawn too.
    """

    def __init__(self, rates: Mapping[Fault, float], *, seed: int) -> None:
        if sum(rates.values()) > 1:
            raise ValueError("the rates of a fault plan add up to more than 1")
        self._rates = dict(rates)
        self._seed = seed
        self._seen: Counter[tuple[str, str]] = Counter()

    def pick(self, asked: Asked) -> Fault | None:
        """Return the fault of this request, if any. It depends on the request's count, not on other requests."""
        which = (asked.method, asked.path)
        self._seen[which] += 1
        chance = random.Random(f"{self._seed} {which} {self._seen[which]}")
        draw = chance.random()
        for fault, rate in self._rates.items():
            draw -= rate
            if draw < 0:
                drawn = replace(
                    fault, after=chance.randint(0, fault.after), seconds=chance.uniform(0, fault.seconds)
                )
                return drawn if drawn.fits(asked) else None
        return None
