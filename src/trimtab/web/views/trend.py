"""What a cluster requested, used and had over time: sampled while the dashboard runs, and kept in the store.

So much is kept as a chart can show. When it is full, every other sample goes and the next ones come half as often: a
year takes no more room than a day.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from trimtab.web.model import Curve, CurveRole, Plot

MAX_SAMPLES = 2000


class ClusterTotals(NamedTuple):
    """Of a whole cluster at one time: cores and bytes; None where usage is not known."""

    at: float
    cpu_requested: float
    cpu_used: float | None
    cpu_allocatable: float
    memory_requested: float
    memory_used: float | None
    memory_allocatable: float


class _TrendState(msgspec.Struct, frozen=True, array_like=True):
    version: int
    every: float
    samples: list[ClusterTotals]


class Trend:
    def __init__(self, *, every: float) -> None:
        """`every` is how many seconds lie between two samples at least."""
        self.every = every
        self.samples: list[ClusterTotals] = []

    def add(self, totals: ClusterTotals) -> bool:
        """Take it in, unless the last one was a moment ago; whether it was."""
        if self.samples and totals.at < self.samples[-1].at + self.every:
            return False
        self.samples.append(totals)
        if len(self.samples) > MAX_SAMPLES:
            self.samples = [self.samples[0], *self.samples[2::2]]
            self.every *= 2
        return True

    def plot(self, resource: str) -> Plot:
        """cpu or memory."""

        def curve(role: CurveRole) -> Curve:
            return Curve(
                role=role,
                name=role.value,
                values=tuple(getattr(each, f"{resource}_{role}") for each in self.samples),
            )

        return Plot(
            unit="cores" if resource == "cpu" else "bytes",
            times=tuple(each.at for each in self.samples),
            curves=(curve(CurveRole.ALLOCATABLE), curve(CurveRole.REQUESTED), curve(CurveRole.USED)),
        )

    def state(self) -> bytes:
        return msgspec.msgpack.encode(_TrendState(1, self.every, self.samples))

    def restore(self, state: bytes) -> None:
        """Go on from what was kept, with what came since; what cannot be read is left, for it costs a chart and nothing else."""
        try:
            kept = msgspec.msgpack.decode(state, type=_TrendState)
        except msgspec.MsgspecError:
            return
        since, self.every, self.samples = self.samples, kept.every, kept.samples
        for totals in since:
            self.add(totals)
