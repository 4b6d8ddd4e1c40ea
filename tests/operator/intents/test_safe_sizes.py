"""Safe sizes that Intents must respect, derived from the evidence of sizing."""

from __future__ import annotations

from datetime import UTC, datetime
from math import inf

import msgspec
import pytest

from actuation.builders import MIB, NOW, pod
from trimtab.kube.kinds.pods import Resources
from trimtab.operator.intents.safe_sizes import derive_safe_size
from trimtab.recommender.workload import WorkloadRecommendation
from trimtab.sizing.evidence import Evidence, OomKills
from trimtab.sizing.policy_rules import PolicyRules
from trimtab.sizing.recommendation import Recommendation

SIZE = Resources(500, 500, 512 * MIB, 512 * MIB)
CONTAINERS = pod(sizes={"web": SIZE, "proxy": SIZE}).containers


def evidence_with(*, hours: float = 24 * 8, peak: int | None = 300 * MIB, coverage: float = 1.0) -> Evidence:
    return Evidence(
        samples=1000,
        run_seconds=hours * 3600,
        first_sample_at=NOW - hours * 3600,
        last_sample_at=float(NOW),
        memory_peak=peak,
        coverage=coverage,
    )


@pytest.mark.parametrize(
    ("evidence", "least"),
    [
        (evidence_with(), 330 * MIB),
        (evidence_with(hours=0.1), inf),
        (evidence_with(coverage=0.1), inf),
        (evidence_with(peak=None), inf),
        (None, inf),
    ],
)
def test_safe_size_is_the_safe_minimum_of_sizing(evidence: Evidence | None, least: float) -> None:
    assessment = WorkloadRecommendation((), {"web": evidence} if evidence else {}, is_urgent=False)
    found = derive_safe_size(assessment, CONTAINERS, "web", rules=PolicyRules(), now=NOW)
    assert found.min_memory == pytest.approx(least, rel=0.001)
    assert not found.oom_relief
    assert found.reason


def test_safe_size_raises_memory_of_any_killed_container_but_no_cpu() -> None:
    wanted = Resources(100, 100, 768 * MIB, 768 * MIB)
    assessment = WorkloadRecommendation(
        (Recommendation("proxy", wanted, (), None),), {"web": evidence_with()}, is_urgent=True
    )
    found = derive_safe_size(assessment, CONTAINERS, "web", rules=PolicyRules(), now=NOW)
    assert found.oom_relief == {"proxy": Resources(500, 500, 768 * MIB, 768 * MIB)}


@pytest.mark.parametrize(
    ("killed_with", "recommended", "held", "relief_text"),
    [
        (512, 768, None, "and its memory is raised to 768Mi"),
        (256, 512, None, "and its memory is raised to 512Mi"),
        (512, 512, "it looks like a leak", "and gets no more: it looks like a leak"),
    ],
)
def test_safe_size_describes_oom_kills_and_relief(
    killed_with: int, recommended: int, held: str | None, relief_text: str
) -> None:
    kill = OomKills(memory=killed_with * MIB, count=1, first=NOW - 60.0, last=NOW - 60.0)
    evidence = msgspec.structs.replace(evidence_with(), kills=(kill,))
    wanted = Resources(500, 500, recommended * MIB, recommended * MIB)
    assessment = WorkloadRecommendation(
        (Recommendation("web", wanted, (), held),), {"web": evidence}, is_urgent=recommended > 512
    )
    found = derive_safe_size(assessment, CONTAINERS, "web", rules=PolicyRules(), now=NOW)
    at = datetime.fromtimestamp(NOW - 60, UTC).strftime("%H:%M")
    assert (
        found.oom_message == f"container web was OOM-killed with {killed_with}Mi at {at} UTC, {relief_text}"
    )
    later = derive_safe_size(assessment, CONTAINERS, "web", rules=PolicyRules(), now=NOW + 3600)
    assert not later.oom_message
