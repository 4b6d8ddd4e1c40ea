"""The rules of leader election as pure functions: who may acquire a lease, when, and what the lease then contains.

Clocks of different machines are never compared. A candidate may take over once it has seen no renewal for the
duration of the lease, measured on its own clock. The leader measures from before it sent its last renewal, and so
gives up first. `leader_election` applies these rules to a real API server.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from trimtab.api.fields import format_micro_time

JITTER = 0.2
"""The maximum extra share of the retry period, so that candidates do not retry in step."""

LeaseSpec = dict[str, Any]
"""The spec of a Lease as JSON."""


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """The times of an election in seconds; they must be equal for all candidates of a lease."""

    duration: float = 15.0
    """The duration of a lease without renewal: the longest time without a leader after a leader died."""
    renew_deadline: float = 10.0
    """The time that a leader continues without a renewal: it survives API server outages up to this long."""
    retry_period: float = 2.0
    """The interval at which a leader renews and a candidate retries."""

    def __post_init__(self) -> None:
        if not self.retry_period > 0:
            raise ValueError(f"lease timing: retry_period of {self.retry_period} s must be more than 0")
        if not self.renew_deadline > self.retry_period * (1 + JITTER):
            raise ValueError(
                f"lease timing: renew_deadline of {self.renew_deadline} s leaves no time for a second attempt; "
                f"make it more than {1 + JITTER} times retry_period, which is {self.retry_period} s"
            )
        if not self.duration > self.renew_deadline:
            raise ValueError(
                f"lease timing: duration of {self.duration} s must be longer than renew_deadline, "
                f"which is {self.renew_deadline} s: the difference is the time in which a leader's work ends"
            )

    @property
    def attempt_timeout(self) -> float:
        """The longest time of one attempt, so that a hanging one leaves time for another."""
        return self.renew_deadline / 2


@dataclass(slots=True)
class LeaseObservation:
    """The last state of a lease that a candidate saw, and the time on its own clock when it last changed."""

    spec: LeaseSpec = field(default_factory=dict)
    changed_at: float = -math.inf

    def observe(self, spec: LeaseSpec, now: float) -> None:
        if spec != self.spec:
            self.spec = spec
            self.changed_at = now

    @property
    def holder(self) -> str:
        return self.spec.get("holderIdentity") or ""

    def is_free(self, identity: str, now: float, *, default_duration: float) -> bool:
        """Return True if this candidate may acquire the lease: nobody else holds it, or its holder did not renew it.

        A lease lasts as long as it specifies itself; otherwise `default_duration`.
        """
        lasts = self.spec.get("leaseDurationSeconds") or default_duration
        return self.holder in {"", identity} or now >= self.changed_at + lasts

    def build_claim(self, identity: str, now: datetime, *, duration: float) -> LeaseSpec:
        """Return the lease held by this candidate: renewed if it held it already, else taken over."""
        renewed = self.holder == identity
        transitions = self.spec.get("leaseTransitions") or 0
        return self.spec | {
            "holderIdentity": identity,
            "leaseDurationSeconds": math.ceil(duration),
            "acquireTime": (renewed and self.spec.get("acquireTime")) or format_micro_time(now),
            "renewTime": format_micro_time(now),
            "leaseTransitions": transitions if renewed or not self.spec else transitions + 1,
        }

    def build_release(self, now: datetime) -> LeaseSpec:
        """Return the lease without a holder, so that a successor need not wait until it expires."""
        return self.spec | {
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
            "renewTime": format_micro_time(now),
        }
