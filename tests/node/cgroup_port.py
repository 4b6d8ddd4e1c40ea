"""The operations that tests of knobs use, on real cgroups (`Kubepods`) or on a fake tree."""

from __future__ import annotations

from typing import Protocol

from trimtab.node.cgroups import Hierarchy, QosClass
from trimtab.node.executor import KnobFiles


class Cgroups(Protocol):
    """The cgroups of a node, in which a test makes pods."""

    @property
    def hierarchy(self) -> Hierarchy: ...

    @property
    def knob_files(self) -> KnobFiles: ...

    @property
    def cpus(self) -> frozenset[int]: ...

    def pod(
        self, qos: QosClass = QosClass.BURSTABLE, *, uid: str | None = None, containers: int = 1
    ) -> tuple[str, list[str]]: ...

    def create(self, path: str) -> None: ...

    def remove(self, path: str) -> None: ...
