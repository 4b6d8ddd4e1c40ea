"""Detect a sudden change of a container's usage pattern: hours outside of what the same time of day had in the last week or two.

For each part of the day, the highest and the lowest hourly mean of CPU, of one replica and of all, and the highest memory
are kept: of the present eight days, and of the eight before. What comes back every day or every week is inside them, and a
change that lasts is inside from the next day on: it is learned. One hour outside is a spike; several of them are a shift,
which ends a day after the last hour outside, and after three days at the latest. An hour is compared only where the extremes
contain the same hours of this weekday: after a gap on a weekend, or an upgrade, the next weekend would be unusual.

Other replicas explain other usage of each, so that CPU is outside only if that of all replicas is as well. Until that of
all was seen on this weekday, a new number of replicas is learned for a day without a shift, as are a new image, another
memory size, another CPU limit, and another CPU request that usage exceeded. Only more memory is a shift: each restart lowers
memory.

The state of a container is a few numbers, whatever its strategy. `bench/usage_shifts.py` measures false alarms and
detection.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from trimtab.api.quantity import ResourceName
from trimtab.sizing.evidence import UsageShift
from trimtab.sizing.state import MAX_PLAUSIBLE_CPU, MAX_PLAUSIBLE_MEMORY, Array, Floats, Indices
from trimtab.sizing.stats.window import NEVER

Booleans = npt.NDArray[np.bool_]
Hours = npt.NDArray[np.int32]

HOUR, DAY = 3600.0, 86400.0
SLOTS = 12
"""The number of parts of a day that are compared separately."""
GENERATION_HOURS = 8 * 24
"""The hours after which extremes become the former ones: a week and a day."""
PERIOD_DAYS = 7
"""The days after which usage may come back: each of them is compared only if the extremes contain it."""
MATURE_SECONDS = 7 * DAY
"""The seconds of samples before which nothing is a shift: what comes back every week must have been seen once."""
MIN_HOUR_SECONDS = 1800.0
"""The seconds of samples without which an hour does not count."""
CPU_FLOOR, MEMORY_FLOOR = 0.05, 64 * 2.0**20
"""The cores and bytes that less usage counts as: the smallest containers vary by large factors."""
MIN_DISTANCE = 0.4
"""The least distance outside of the extremes, as a binary logarithm: a third more, or a quarter less."""
WIDTH_SHARE = 0.15
"""The share of the distance between both extremes that is added to it: what varies much may vary more."""
SHIFT_SCORE, MAX_HOUR_SCORE, INSIDE_SCORE = 5.0, 1.5, 0.5
"""The score that is a shift, the most that an hour outside adds to it, and what an hour inside takes away."""
ENDS_AFTER, LONGEST, EXPLAINED_FOR = 24, 72, 24
"""The hours from the last hour outside and from the first report to the end of a shift, and those in which a known cause
explains another pattern.
"""
NO_HOUR = -1
RESOURCES: tuple[ResourceName, ...] = ("cpu", "memory")
_CPU, _MEMORY = range(2)
_ONE, _ALL, _BYTES = range(3)
"""The measures of an hour: the CPU of the busiest replica, the CPU of all replicas, and memory."""


class UsageShiftTracker:
    """The extremes of each container's usage by time of day, and the shifts in effect."""

    def __init__(self, rows: int) -> None:
        self._arrays: dict[str, Array] = {
            "clock": np.full(2, NEVER),  # The present hour, and the present generation.
            "sums": np.zeros((3, rows)),  # CPU, seconds, and the highest memory of the hour.
            "replicas": np.zeros(rows, np.int32),
            "replicas_before": np.zeros(rows, np.int32),  # The last known number.
            "size": np.full(rows, np.nan, np.float32),  # See `observe_cpu_sizes`.
            "days": np.zeros((2, SLOTS, 3, rows), np.uint8),  # A bit for each weekday in the extremes.
            "highest": np.full((2, SLOTS, 3, rows), -np.inf, np.float16),
            "lowest": np.full((2, SLOTS, 2, rows), np.inf, np.float16),
            "score": np.zeros((2, rows), np.float32),
            "distance": np.zeros((2, rows), np.float32),
            "since": np.full((2, rows), NO_HOUR, np.int32),
            "last": np.full((2, rows), NO_HOUR, np.int32),
            "explained": np.full((2, rows), NO_HOUR, np.int32),
            "scaled": np.full(rows, NO_HOUR, np.int32),
        }

    def observe(self, t: float, cpu: Floats, memory: Floats, *, seconds: float, observed: Floats) -> None:
        """Add one sample of each container, which lasts `seconds`, after so many `observed` seconds of each."""
        clock, sums = self._arrays["clock"], self._arrays["sums"]
        hour = math.floor(t / HOUR)
        if hour < clock[0]:
            if hour > clock[0] - GENERATION_HOURS:
                return
            self._turn_back(hour)
        if hour > clock[0]:
            if clock[0] != NEVER:
                self._close_hour(int(clock[0]), observed >= MATURE_SECONDS)
            clock[0] = hour
            sums[:] = 0.0
        seen = (cpu >= 0) & (cpu <= MAX_PLAUSIBLE_CPU)
        sums[0, seen] += cpu[seen] * seconds
        sums[1, seen] += seconds
        np.maximum(sums[2], memory, out=sums[2], where=(memory >= 0) & (memory <= MAX_PLAUSIBLE_MEMORY))

    def observe_replicas(self, containers: Indices, replicas: Indices) -> None:
        """Record the number of replicas of these containers; 0 is unknown."""
        self._arrays["replicas"][containers] = replicas

    def observe_cpu_sizes(self, t: float, containers: Indices, sizes: Floats) -> None:
        """Record the CPU limits in cores, or as negative numbers the requests of containers without a limit.

        A changed size explains other CPU usage: a request only if usage exceeded the smaller one, because less than that a
        container always gets, and only before usage is unusual, because unusual usage raises it.
        """
        own = self._arrays
        before, now = own["size"][containers], sizes.astype(np.float32)
        own["size"][containers] = now
        changed = ~np.isnan(before) & (before != now)
        if changed.any():
            highest = own["highest"][:, :, _ONE, containers].max(axis=(0, 1)).astype(np.float64)
            limited = (before > 0) | (now > 0)
            exceeded = np.exp2(highest) > np.minimum(np.abs(before), np.abs(now))
            exceeded &= own["score"][_CPU, containers] == 0.0
            self.explain(t, containers[changed & (limited | exceeded)], "cpu")

    def explain(self, t: float, containers: Indices, *resources: ResourceName) -> None:
        """Record that something known changes the usage of these containers from now on."""
        for resource in resources:
            self._arrays["explained"][RESOURCES.index(resource), containers] = (
                math.floor(t / HOUR) + EXPLAINED_FOR
            )

    def find_shift(self, t: float, row: int) -> UsageShift | None:
        """Return the shift of a container that is in effect at `t`, the first of both resources."""
        own, found = self._arrays, list[UsageShift]()
        for index, resource in enumerate(RESOURCES):
            since, last = int(own["since"][index, row]), int(own["last"][index, row])
            until = _end(since, last)
            if since != NO_HOUR and t < until * HOUR:
                factor = 2.0 ** float(own["distance"][index, row])
                found.append(UsageShift(resource, factor=factor, since=since * HOUR, until=until * HOUR))
        return min(found, key=lambda each: each.since, default=None)

    def arrays(self, prefix: str) -> dict[str, Array]:
        return {prefix + name: array for name, array in self._arrays.items()}

    def load_arrays(self, prefix: str, arrays: Mapping[str, Array]) -> None:
        """Load stored arrays; a state of before there were shifts has none."""
        self._arrays = {name: arrays.get(prefix + name, array) for name, array in self._arrays.items()}

    def _close_hour(self, hour: int, mature: Booleans) -> None:
        """Compare a complete hour with the extremes of its part of the day, and add it to them."""
        self._turn_generation(hour // GENERATION_HOURS)
        own, slot = self._arrays, hour % 24 * SLOTS // 24
        cpu_seconds, seconds, peak = own["sums"]
        counted = seconds >= MIN_HOUR_SECONDS
        one = np.log2(np.maximum(cpu_seconds / np.maximum(seconds, 1.0), CPU_FLOOR))
        usage = np.stack(
            [one, one + np.log2(np.maximum(own["replicas"], 1)), np.log2(np.maximum(peak, MEMORY_FLOOR))]
        )
        measured = np.stack([counted, counted & (own["replicas"] > 0), counted & (peak > 0)])
        highest, lowest, days = (own[name][:, slot] for name in ("highest", "lowest", "days"))
        day = np.uint8(1 << hour // 24 % PERIOD_DAYS)
        contained = np.bitwise_or(*days) & day > 0
        distances, leasts = _distances(
            usage, highest.max(axis=0).astype(np.float64), lowest.min(axis=0).astype(np.float64)
        )
        scaled = (own["replicas"] > 0) & (own["replicas"] != own["replicas_before"])
        np.copyto(own["replicas_before"], own["replicas"], where=scaled)
        own["scaled"][scaled] = hour + EXPLAINED_FOR
        distances[~contained] = np.inf
        # Without an earlier hour of all replicas, one replica decides, unless there may have been others.
        distances[_ONE, ~contained[_ALL] & (own["scaled"] > hour)] = np.inf
        explained = measured[_ALL] & (np.abs(distances[_ALL]) < leasts[_ALL])
        cpu = np.where(explained, 0.0, distances[_ONE])
        self._score(_CPU, hour + 1, measured[_ONE], cpu, leasts[_ONE], mature)
        self._score(_MEMORY, hour + 1, measured[_BYTES], distances[_BYTES], leasts[_BYTES], mature)
        days[0][measured] |= day
        np.copyto(highest[0], np.maximum(highest[0], usage.astype(np.float16)), where=measured)
        np.copyto(
            lowest[0], np.minimum(lowest[0], usage[:_BYTES].astype(np.float16)), where=measured[:_BYTES]
        )

    def _score(
        self, resource: int, now: int, measured: Booleans, distance: Floats, least: Floats, mature: Booleans
    ) -> None:
        """Score an hour of one resource, and begin and end shifts."""
        own = {name: self._arrays[name][resource] for name in ("score", "distance", "since", "last")}
        score, since, last = own["score"], own["since"], own["last"]
        since[(since != NO_HOUR) & (np.minimum(last + ENDS_AFTER, since + LONGEST) <= now)] = NO_HOUR
        known = measured & np.isfinite(distance)
        may = mature & (self._arrays["explained"][resource] < now)
        outside = known & may & (np.abs(distance) >= least)
        inside = known & ~outside
        score[outside] += np.minimum(np.abs(distance[outside]) / least[outside], MAX_HOUR_SCORE)
        score[inside] = np.maximum(score[inside] - INSIDE_SCORE, 0.0)
        last[outside] = now
        begins = outside & (score >= SHIFT_SCORE) & (since == NO_HOUR)
        own["distance"][begins] = distance[begins]
        since[begins] = now
        score[since != NO_HOUR] = 0.0

    def _turn_generation(self, number: int) -> None:
        """Make the present extremes the former ones where a new generation begins."""
        own, before = self._arrays, int(self._arrays["clock"][1])
        if number <= before:
            return
        for name, nothing in (("highest", -np.inf), ("lowest", np.inf), ("days", 0)):
            own[name][1] = own[name][0] if number == before + 1 else nothing
            own[name][0] = nothing
        own["clock"][1] = number

    def _turn_back(self, hour: int) -> None:
        """Continue at an earlier hour, after a clock that was far ahead."""
        own = self._arrays
        own["clock"][:] = hour, min(int(own["clock"][1]), hour // GENERATION_HOURS)
        own["sums"][:] = 0.0
        own["since"][own["since"] > hour] = NO_HOUR
        for name, latest in (
            ("last", hour),
            ("explained", hour + EXPLAINED_FOR),
            ("scaled", hour + EXPLAINED_FOR),
        ):
            np.minimum(own[name], latest, out=own[name])


def _distances(usage: Floats, highest: Floats, lowest: Floats) -> tuple[Floats, Floats]:
    """Return how far each measure is above its highest or, as a negative number, below its lowest, and how far counts.

    0 is inside; infinite is unknown.
    """
    above = usage - highest
    below = np.zeros_like(above)
    below[:_BYTES] = lowest - usage[:_BYTES]
    width = np.zeros_like(above)
    with np.errstate(invalid="ignore"):  # unknown extremes
        width[:_BYTES] = highest[:_BYTES] - lowest
        distance: Floats = np.where(above > 0.0, above, -np.maximum(below, 0.0))
    return distance, MIN_DISTANCE + WIDTH_SHARE * width


def _end(since: int, last: int) -> int:
    return min(last + ENDS_AFTER, since + LONGEST)
