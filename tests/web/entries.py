"""Builders of the history entries of one workload."""

from trimtab.actuation.resources import to_manifest
from trimtab.kube.kinds.pods import Resources
from trimtab.store import HistoryRecord


def entry(
    at: float, what: str = "applied", before: Resources | None = None, after: Resources | None = None
) -> HistoryRecord:
    """An entry of Deployment shop/web, about its one container."""
    return HistoryRecord(
        timestamp=at,
        cluster="test",
        namespace="shop",
        kind="Deployment",
        name="web",
        what=what,
        before={"app": to_manifest(before)} if before else None,
        after={"app": to_manifest(after)} if after else None,
        who="x",
        why="y",
    )
