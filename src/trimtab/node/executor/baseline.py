"""The node as it would be without us, looked at once: what the arbiter holds wishes to.

It is for a few rounds of the same pods. What was read stays as it was read, since several wishes ask for the same, and
a parent is asked about once a child.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trimtab.node.arbiter.requests import Spot, Value
from trimtab.node.cgroups import Version
from trimtab.node.cgroups.knobs import CPUSET_CPUS
from trimtab.node.executor.knob_files import Surface


@dataclass
class Undisturbed:
    """What knobs would hold: their originals from the journal, or else what they hold now."""

    surface: Surface
    originals: Mapping[Spot, Value | None]
    _held: dict[Spot, Value | None] = field(default_factory=dict)
    _values: dict[Spot, Value | None] = field(default_factory=dict)

    @property
    def version(self) -> Version:
        return self.surface.version

    def children(self, path: str) -> list[str]:
        return [f"{path}/{name}" for name in sorted(self.surface.hierarchy.children(path))]

    def value(self, spot: Spot) -> Value | None:
        """What a knob would hold without us; None where there is no such thing.

        In cgroup v1 a cgroup is born with its parent's CPUs. One that was born into what we had done to its parent
        would without us have what the parent had.
        """
        if spot in self.originals:
            return self.originals[spot]
        if spot not in self._values:
            self._values[spot] = self._undisturbed(spot)
        return self._values[spot]

    def _undisturbed(self, spot: Spot) -> Value | None:
        held, parent = self._now(spot), spot.parent
        if spot.knob == CPUSET_CPUS and held and parent is not None and self.version is Version.V1:
            inherited = self.value(parent)
            if held == self._now(parent) != inherited:
                return inherited
        return held

    def _now(self, spot: Spot) -> Value | None:
        if spot not in self._held:
            self._held[spot] = self.surface.read(spot)
        return self._held[spot]
