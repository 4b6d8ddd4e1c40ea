"""The rules of leader election, without the leader: who may take a lease, when, and what it then says.

No clock of one machine is compared with that of another. A candidate may take over once it has itself seen
no renewal for as long as the lease says it lasts, counted on its own clock. Whoever leads counts from before
it sent its last renewal, and so gives up first. `lease` plays by these rules on a real API server.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from trimtab.kube.rest.timestamps import format_micro_time

JITTER = 0.2
"""By this share candidates look later than they need, so that they do not look in step."""

LeaseSpec = dict[str, Any]
"""The spec of a Lease as JSON."""


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """The times of an election, in seconds; the same for all candidates of a lease."""

    duration: float = 15.0
    """How long the lease lasts when it is not renewed: so long nobody leads after a leader died."""
    renew_deadline: float = 10.0
    """How long a leader goes on without a renewal: API server outages up to this are survived."""
    retry_period: float = 2.0
    """How often a leader renews and a candidate looks."""

    def __post_init__(self) -> None:
        if not self.retry_period > 0:
            raise ValueError(f"lease timing: retry of {self.retry_period} s must be more than 0")
        if not self.renew_deadline > self.retry_period * (1 + JITTER):
            raise ValueError(
                f"lease timing: renew_deadline of {self.renew_deadline} s leaves no second try; "
                f"make it more than {1 + JITTER} times retry, which is {self.retry_period} s"
            )
        if not self.duration > self.renew_deadline:
            raise ValueError(
                f"lease timing: duration of {self.duration} s must be longer than renew_deadline, "
                f"which is {self.renew_deadline} s: in the difference a leader's work ends"
            )

    @property
    def attempt_timeout(self) -> float:
        """How long one try may take, so that a hanging one leaves time for another."""
        return self.renew_deadline / 2


@dataclass(slots=True)
class LeaseObservation:
    """What a candidate saw of a lease, and when, on its own clock, it last saw it change."""

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
        """Whether this candidate may take the lease: nobody else holds it, or its holder did not renew it.

        A lease lasts as long as it says itself; one that says nothing, as long as usual.
        """
        lasts = self.spec.get("leaseDurationSeconds") or default_duration
        return self.holder in {"", identity} or now >= self.changed_at + lasts

    def build_claim(self, identity: str, now: datetime, *, duration: float) -> LeaseSpec:
        """The lease as this candidate's: renewed if it was that already, else taken over."""
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
        """The lease as nobody's, so that a successor need not wait until it runs out."""
        return self.spec | {
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
            "renewTime": format_micro_time(now),
        }
