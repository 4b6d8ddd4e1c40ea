"""What a store has of one workload."""

from trimtab.actuation.resources import written
from trimtab.kube.kinds.pods import Resources
from trimtab.store import HistoryEntry


def entry(
    at: float, what: str = "applied", before: Resources | None = None, after: Resources | None = None
) -> HistoryEntry:
    """An entry of Deployment shop/web, about its one container."""
    return HistoryEntry(
        timestamp=at,
        cluster="test",
        namespace="shop",
        kind="Deployment",
        name="web",
        what=what,
        before={"app": written(before)} if before else None,
        after={"app": written(after)} if after else None,
        who="x",
        why="y",
    )
