"""The node as it would be without us, looked at once: what the arbiter holds wishes to.

It is for a few rounds of the same pods. What was read stays as it was read, since several wishes ask for the same, and
a parent is asked about once a child.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trimtab.node.arbiter.requests import KnobRef, Value
from trimtab.node.cgroups import CgroupVersion
from trimtab.node.cgroups.knobs import CPUSET_CPUS
from trimtab.node.executor.knob_files import KnobFiles


@dataclass
class Baseline:
    """What knobs would hold: their originals from the journal, or else what they hold now."""

    files: KnobFiles
    originals: Mapping[KnobRef, Value | None]
    _current: dict[KnobRef, Value | None] = field(default_factory=dict)
    _values: dict[KnobRef, Value | None] = field(default_factory=dict)

    @property
    def version(self) -> CgroupVersion:
        return self.files.version

    def children(self, path: str) -> list[str]:
        return [f"{path}/{name}" for name in sorted(self.files.hierarchy.children(path))]

    def value(self, ref: KnobRef) -> Value | None:
        """What a knob would hold without us; None where there is no such thing.

        In cgroup v1 a cgroup is born with its parent's CPUs. One that was born into what we had done to its parent
        would without us have what the parent had.
        """
        if ref in self.originals:
            return self.originals[ref]
        if ref not in self._values:
            self._values[ref] = self._compute_value(ref)
        return self._values[ref]

    def _compute_value(self, ref: KnobRef) -> Value | None:
        held, parent = self._read_current(ref), ref.parent
        if ref.knob == CPUSET_CPUS and held and parent is not None and self.version is CgroupVersion.V1:
            inherited = self.value(parent)
            if held == self._read_current(parent) != inherited:
                return inherited
        return held

    def _read_current(self, ref: KnobRef) -> Value | None:
        if ref not in self._current:
            self._current[ref] = self.files.read(ref)
        return self._current[ref]
