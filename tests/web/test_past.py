"""The sizes that a container had over time, by what the history tells of its changes."""

from __future__ import annotations

from trimtab.actuation.sizes import written
from trimtab.kube.pods import Resources
from trimtab.store import HistoryEntry
from trimtab.web.past import Sizes

SMALL, MIDDLE, LARGE = (Resources(cpu_request=amount) for amount in (100, 200, 300))


def entry(at: float, what: str, before: Resources, after: Resources) -> HistoryEntry:
    return HistoryEntry(
        timestamp=at,
        cluster="test",
        namespace="shop",
        kind="Deployment",
        name="web",
        what=what,
        before={"app": written(before)},
        after={"app": written(after)},
        who="x",
        why="y",
    )


def had(*told: HistoryEntry, now: Resources) -> list[float | None]:
    """At 0, 10, 20 and so on up to 60."""
    sizes = Sizes("app", told[::-1], has=now, should=None)
    return list(sizes.had([float(at) for at in range(0, 61, 10)], lambda size: size.cpu_request))


BEFORE = (entry(5.0, "applying", SMALL, MIDDLE), entry(15.0, "applied", SMALL, MIDDLE))


def test_a_change_under_way_does_not_reach_back_to_the_one_before_it() -> None:
    found = had(*BEFORE, entry(35.0, "applying", MIDDLE, LARGE), now=LARGE)
    assert found == [100, 200, 200, 200, 300, 300, 300]


def test_a_change_that_was_taken_back_is_seen_while_it_lasted() -> None:
    tried = entry(25.0, "applying", MIDDLE, LARGE), entry(45.0, "reverted", LARGE, MIDDLE)
    assert had(*BEFORE, *tried, now=MIDDLE) == [100, 200, 200, 300, 300, 200, 200]
