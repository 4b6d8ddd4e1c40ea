"""Record requests, usage and allocatable resources of the cluster over time, saved in the store.

Only as many samples are kept as a chart can show. When full, every other sample is dropped and the interval doubles, so
a year takes no more space than a day.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from trimtab.web.model import Curve, CurveRole, Plot

MAX_SAMPLES = 2000


class ClusterTotals(NamedTuple):
    """The totals of a cluster at one time in cores and bytes; usage is None if unknown."""

    at: float
    cpu_requested: float
    cpu_used: float | None
    cpu_allocatable: float
    memory_requested: float
    memory_used: float | None
    memory_allocatable: float
    node_cost: float | None = None
    """The monthly cost of the nodes; None if it was not recorded yet."""
    saved: float | None = None
    """The money that changes saved so far; None if it was not recorded yet."""


class _TrendState(msgspec.Struct, frozen=True, array_like=True):
    version: int
    every: float
    samples: list[ClusterTotals]


class Trend:
    def __init__(self, *, every: float) -> None:
        """Create a trend; `every` is the minimum number of seconds between two samples."""
        self.every = every
        self.samples: list[ClusterTotals] = []

    def add(self, totals: ClusterTotals) -> bool:
        """Add a sample unless the last one is too recent; return whether it was added."""
        if self.samples and totals.at < self.samples[-1].at + self.every:
            return False
        self.samples.append(totals)
        if len(self.samples) > MAX_SAMPLES:
            # The first sample stays: the overview compares costs and nodes with it.
            self.samples = [self.samples[0], *self.samples[2::2]]
            self.every *= 2
        return True

    def plot(self, resource: str) -> Plot:
        """Build the plot of a resource: cpu or memory."""

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

    @property
    def first_node_cost(self) -> float | None:
        """The first recorded cost of the nodes; None if there is none."""
        return next((each.node_cost for each in self.samples if each.node_cost is not None), None)

    def plot_cost(self, currency: str, price: Callable[[float, float], float]) -> Plot:
        """Build the plot of monthly costs; `price` returns that of cores and bytes."""
        return Plot(
            unit=f"{currency} a month",
            times=tuple(each.at for each in self.samples),
            curves=(
                Curve(
                    role=CurveRole.ALLOCATABLE,
                    name="nodes",
                    values=tuple(each.node_cost for each in self.samples),
                ),
                Curve(
                    role=CurveRole.REQUESTED,
                    name="requested",
                    values=tuple(price(each.cpu_requested, each.memory_requested) for each in self.samples),
                ),
            ),
        )

    def plot_savings(self, currency: str) -> Plot:
        """Build the plot of the money that changes saved so far."""
        saved = Curve(role=CurveRole.USED, name="saved", values=tuple(each.saved for each in self.samples))
        return Plot(unit=currency, times=tuple(each.at for each in self.samples), curves=(saved,))

    def state(self) -> bytes:
        return msgspec.msgpack.encode(_TrendState(1, self.every, self.samples))

    def restore(self, state: bytes) -> None:
        """Restore saved samples and append the newer ones; unreadable state is ignored, because it only costs a chart."""
        try:
            saved = msgspec.msgpack.decode(state, type=_TrendState)
        except msgspec.MsgspecError:
            return
        newer, self.every, self.samples = self.samples, saved.every, saved.samples
        for totals in newer:
            self.add(totals)
