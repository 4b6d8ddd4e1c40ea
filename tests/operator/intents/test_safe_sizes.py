"""What Intents must respect of their targets, derived from the evidence of sizing."""

from __future__ import annotations

from datetime import UTC, datetime
from math import inf

import msgspec
import pytest

from actuation.builders import MIB, NOW, pod
from trimtab.kube.kinds.pods import Resources
from trimtab.operator.intents.safe_sizes import safe_size
from trimtab.recommender.workload import Assessment
from trimtab.sizing.evidence import Evidence, OomKills
from trimtab.sizing.policy_rules import Rules
from trimtab.sizing.recommendation import Recommendation

SIZE = Resources(500, 500, 512 * MIB, 512 * MIB)
CONTAINERS = pod(sizes={"web": SIZE, "proxy": SIZE}).containers


def seen(*, hours: float = 24 * 8, peak: int | None = 300 * MIB, coverage: float = 1.0) -> Evidence:
    return Evidence(
        samples=1000,
        ran=hours * 3600,
        first=NOW - hours * 3600,
        last=float(NOW),
        memory_peak=peak,
        coverage=coverage,
    )


@pytest.mark.parametrize(
    ("evidence", "least"),
    [
        (seen(), 330 * MIB),
        (seen(hours=0.1), inf),
        (seen(coverage=0.1), inf),
        (seen(peak=None), inf),
        (None, inf),
    ],
)
def test_safe_size_is_the_safe_minimum_of_sizing(evidence: Evidence | None, least: float) -> None:
    assessment = Assessment((), {"web": evidence} if evidence else {}, urgent=False)
    found = safe_size(assessment, CONTAINERS, "web", rules=Rules(), now=NOW)
    assert found.least_memory == pytest.approx(least, rel=0.001)
    assert not found.relief
    assert found.why


def test_safe_size_relieves_any_container_that_was_killed_and_leaves_cpu_to_the_planner() -> None:
    wanted = Resources(100, 100, 768 * MIB, 768 * MIB)
    assessment = Assessment((Recommendation("proxy", wanted, (), None),), {"web": seen()}, urgent=True)
    found = safe_size(assessment, CONTAINERS, "web", rules=Rules(), now=NOW)
    assert found.relief == {"proxy": Resources(500, 500, 768 * MIB, 768 * MIB)}


@pytest.mark.parametrize(
    ("killed_with", "recommended", "held", "told"),
    [
        (512, 768, None, "and its memory is raised to 768Mi"),
        (256, 512, None, "and its memory is raised to 512Mi"),
        (512, 512, "it looks like a leak", "and is given no more: it looks like a leak"),
    ],
)
def test_safe_size_tells_of_kills_and_of_what_is_done_about_them(
    killed_with: int, recommended: int, held: str | None, told: str
) -> None:
    kill = OomKills(memory=killed_with * MIB, count=1, first=NOW - 60.0, last=NOW - 60.0)
    evidence = msgspec.structs.replace(seen(), kills=(kill,))
    wanted = Resources(500, 500, recommended * MIB, recommended * MIB)
    assessment = Assessment(
        (Recommendation("web", wanted, (), held),), {"web": evidence}, urgent=recommended > 512
    )
    found = safe_size(assessment, CONTAINERS, "web", rules=Rules(), now=NOW)
    at = datetime.fromtimestamp(NOW - 60, UTC).strftime("%H:%M")
    assert found.killed == f"container web was OOM-killed with {killed_with}Mi at {at} UTC, {told}"
    later = safe_size(assessment, CONTAINERS, "web", rules=Rules(), now=NOW + 3600)
    assert not later.killed
