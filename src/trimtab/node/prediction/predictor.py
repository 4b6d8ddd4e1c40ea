"""Predict how much of their requests production pods will not need, by their observed peaks.

A pod observed for a day needs its 95th percentile of CPU and its 98th of memory, plus 10 %; a younger one
needs its request. Three algorithms sum the reclaimable amounts:

    pods      the sum over pods
    together  the amount of all pods as one, which is more because peaks seldom coincide
    careful   the smaller of the two

An unknown amount is None and never 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from trimtab.node.model import Metric, MetricWindows, NodeView, PodView, Tier, pod_subject, tier_subject
from trimtab.node.prediction.histogram import CPU, DAY, MEMORY, DecayingHistogram, HistogramState
from trimtab.timing import Interval

SAMPLE_SECONDS: Final = 60.0
"""The seconds between two samples."""
MARGIN: Final = 1.10
# A whole day: a pod that was only seen by night would lend what it needs by day.
MIN_HISTORY: Final = DAY
FORGET_AFTER: Final = 3600.0
"""The seconds after which the peaks of a deleted pod are dropped."""

PROD: Final = (Tier.LSR, Tier.LS)
ALL_PROD: Final = "prod"


class ResourceAmounts(NamedTuple):
    """Amounts in millicores and bytes."""

    cpu: int
    memory: int


@dataclass(slots=True)
class PeakUsage:
    """The observed usage of a pod, or of all production pods."""

    since: float
    """The start of the observation, moved forward by the time without samples."""
    last: float
    cpu: DecayingHistogram = field(default_factory=lambda: DecayingHistogram(CPU))
    memory: DecayingHistogram = field(default_factory=lambda: DecayingHistogram(MEMORY))

    def estimate_need(self) -> ResourceAmounts | None:
        """Return the need with its margin; None before a day of samples."""
        if self.last - self.since < MIN_HISTORY:
            return None
        cpu, memory = self.cpu.percentile(0.95), self.memory.percentile(0.98)
        if cpu is None or memory is None:
            return None
        return ResourceAmounts(round(cpu * 1000 * MARGIN), round(memory * MARGIN))


class _PeakState(NamedTuple):
    since: float
    last: float
    cpu: HistogramState
    memory: HistogramState


_DECODER = msgspec.msgpack.Decoder(dict[str, _PeakState])


class Predictor:
    """Learns peaks about once a second; `state` and `restore` persist them."""

    def __init__(self) -> None:
        self._peaks: dict[str, PeakUsage] = {}
        self._sampling = Interval(SAMPLE_SECONDS)

    def __len__(self) -> int:
        return len(self._peaks)

    def learn(self, view: NodeView, windows: MetricWindows, now: float) -> None:
        """Add a sample if it is due."""
        if not self._sampling.due(now):
            return
        self._sampling.restart(now)
        pods = view.pods_in_tier(*PROD)
        for pod in pods:
            self._add_peaks(pod.uid, _read_peaks(windows, [pod_subject(pod.uid)]), now)
        self._add_peaks(ALL_PROD, _read_peaks(windows, [tier_subject(tier) for tier in PROD]), now)
        # Existing pods are kept however long the agent was down: their first sample is still to come.
        current = {ALL_PROD, *(pod.uid for pod in pods)} if pods else ()
        self._peaks = {
            key: peaks
            for key, peaks in self._peaks.items()
            if key in current or now - peaks.last < FORGET_AFTER
        }

    def estimate_reclaimable(self, view: NodeView, algorithm: str) -> ResourceAmounts | None:
        """Return the amounts that production could lend; None if unknown."""
        return ALGORITHMS[algorithm](view.pods_in_tier(*PROD), self._estimate_need)

    def state(self) -> bytes:
        return msgspec.msgpack.encode(
            {
                key: _PeakState(peaks.since, peaks.last, peaks.cpu.to_state(), peaks.memory.to_state())
                for key, peaks in self._peaks.items()
            }
        )

    def restore(self, state: bytes) -> None:
        """Restore what `state` returned; raise ValueError for other data."""
        self._peaks = {
            key: PeakUsage(
                kept.since,
                kept.last,
                DecayingHistogram.from_state(CPU, kept.cpu),
                DecayingHistogram.from_state(MEMORY, kept.memory),
            )
            for key, kept in _DECODER.decode(state).items()
        }

    def _add_peaks(self, key: str, seen: tuple[float, float] | None, now: float) -> None:
        """Add the peaks of CPU and memory in the last minute, if known."""
        if seen is None:
            return
        cpu, memory = seen
        peaks = self._peaks.get(key)
        # Peaks from a clock that was ahead would be useless until that time.
        if peaks is None or now < peaks.since:
            peaks = self._peaks[key] = PeakUsage(now, now)
        if now - peaks.last > 2 * SAMPLE_SECONDS:  # the agent was down, or the clock jumped
            peaks.since += now - peaks.last
        peaks.last = now
        peaks.cpu.add(now, cpu)
        peaks.memory.add(now, memory)

    def _estimate_need(self, key: str) -> ResourceAmounts | None:
        peaks = self._peaks.get(key)
        return None if peaks is None else peaks.estimate_need()


EstimateNeed = Callable[[str], ResourceAmounts | None]


def _sum_per_pod(pods: Iterable[PodView], need: EstimateNeed) -> ResourceAmounts | None:
    known = [(pod, needed) for pod in pods if (needed := need(pod.uid)) is not None]
    if not known:
        return None
    return ResourceAmounts(
        # Not negative: a pod above its request would cancel what the others can lend.
        sum(max(0, (pod.resources.cpu_request or 0) - needed.cpu) for pod, needed in known),
        sum(max(0, (pod.resources.memory_request or 0) - needed.memory) for pod, needed in known),
    )


def _sum_together(pods: Iterable[PodView], need: EstimateNeed) -> ResourceAmounts | None:
    """Return the reclaimable amounts of the pods that were observed long enough.

    The peaks of all pods include younger ones, whose requests may be needed at any time. So the older ones
    need at most the common peak, and at most the sum of their own.
    """
    whole, known = need(ALL_PROD), [(pod, found) for pod in pods if (found := need(pod.uid)) is not None]
    if whole is None or not known:
        return None
    # The common peak includes pods without enough history, so that it may exceed the needs of the known ones.
    cpu = min(whole.cpu, sum(found.cpu for _, found in known))
    memory = min(whole.memory, sum(found.memory for _, found in known))
    return ResourceAmounts(
        max(0, sum(pod.resources.cpu_request or 0 for pod, _ in known) - cpu),
        max(0, sum(pod.resources.memory_request or 0 for pod, _ in known) - memory),
    )


def _take_lesser(pods: Iterable[PodView], need: EstimateNeed) -> ResourceAmounts | None:
    each = tuple(pods)
    single, whole = _sum_per_pod(each, need), _sum_together(each, need)
    if single is None or whole is None:
        return None
    return ResourceAmounts(min(single.cpu, whole.cpu), min(single.memory, whole.memory))


ALGORITHMS: Final[Mapping[str, Callable[[Iterable[PodView], EstimateNeed], ResourceAmounts | None]]] = {
    "pods": _sum_per_pod,
    "together": _sum_together,
    "careful": _take_lesser,
}


def _read_peaks(windows: MetricWindows, subjects: Iterable[str]) -> tuple[float, float] | None:
    """Return the peaks of CPU and memory in the last minute, of all subjects together.

    CPU is a high percentile, because a mean or a momentary value would hide peaks shorter than a minute;
    memory is the maximum.
    """
    each = [
        (
            windows.spread(subject, Metric.CPU, SAMPLE_SECONDS),
            windows.spread(subject, Metric.MEMORY, SAMPLE_SECONDS),
        )
        for subject in subjects
    ]
    known = [(cpu.p95, memory.p99) for cpu, memory in each if cpu is not None and memory is not None]
    # Without the usage of one tier the sum would be too low, and memory in use would be lent.
    if len(known) < len(each):
        return None
    return sum(cpu for cpu, _ in known), sum(memory for _, memory in known)
