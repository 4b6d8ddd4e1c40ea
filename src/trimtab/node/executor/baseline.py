"""The node as it would be without the agent, cached for a few rounds; the arbiter's reference.

Values are cached because several requests need the same one, and a parent is needed once per child.
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
    """The values that knobs would have: their originals from the journal, or else their current values."""

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
        """Return the value that a knob would have without the agent; None if it does not exist.

        In cgroup v1 a new cgroup inherits its parent's CPUs. One created below a parent that the agent
        changed would otherwise have the parent's original.
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
            # Equal to the parent's present CPUs means inherited. A cgroup with CPUs of its own was set by
            # somebody, and must get exactly these back.
            if held == self._read_current(parent) != inherited:
                return inherited
        return held

    def _read_current(self, ref: KnobRef) -> Value | None:
        if ref not in self._current:
            self._current[ref] = self.files.read(ref)
        return self._current[ref]
