"""Make releases rarer for targets that soon needed again what was released."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from trimtab.kube.kinds.workloads import WorkloadKey

REVERSED_WITHIN = 2 * 3600.0
"""The seconds after a release in which a raise shows that it was too much; later, the load has changed."""
MAX_WAIT = 12 * 3600.0
"""The longest wait in seconds: a target still releases at night what it needs by day."""


@dataclass(slots=True)
class _Target:
    released_at: float | None = None
    """The time of the last release; None after a raise."""
    wait: float = 0.0


class ReleaseBackoff:
    """The waits before the next release of each target, which double with each release that is soon reversed.

    Where a KPI is noisy, each release would be followed by a miss and a raise, and each raise by a release, without an
    end. Losing it costs a few changes only.
    """

    def __init__(self) -> None:
        self._targets: dict[WorkloadKey | None, _Target] = {}

    def record(
        self, target: WorkloadKey | None, *, is_release: bool, now: float, release_after: float
    ) -> None:
        """Record that a plan was executed."""
        found = self._targets.setdefault(target, _Target())
        is_recent = found.released_at is not None and 0 <= now - found.released_at <= REVERSED_WITHIN
        if is_release:
            if found.released_at is not None and not is_recent:
                found.wait = 0.0
            found.released_at = now
        elif is_recent:
            found.wait = min(2 * max(found.wait, release_after), MAX_WAIT)
            found.released_at = None

    def wait(self, target: WorkloadKey | None) -> float:
        """Return the seconds for which all objectives must have been met; 0 where no release was reversed."""
        found = self._targets.get(target)
        return found.wait if found else 0.0

    def forget_all_but(self, targets: Collection[WorkloadKey | None]) -> None:
        """Forget targets that no Intent has any more."""
        self._targets = {key: each for key, each in self._targets.items() if key in targets}
