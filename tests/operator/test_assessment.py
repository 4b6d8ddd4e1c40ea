"""What a workload should have, from what was learned of it and what its template says."""

import pytest

from harness.records import workload
from trimtab.api.optimizationpolicy import OptimizationPolicySpec
from trimtab.kube.workloads import Workload
from trimtab.operator.assessment import assess
from trimtab.operator.cohort import Learned
from trimtab.sizing.evidence import Evidence
from trimtab.sizing.proposal import Ask, Proposal
from trimtab.sizing.rules import Rules
from trimtab.sizing.surroundings import Surroundings

MIB = 2**20
NOW = 100 * 86400.0
RULES = Rules.of(OptimizationPolicySpec.model_validate({"selector": {}}))
SMALL = Learned(
    Proposal(strategy="test", cpu=Ask(100.0), memory=Ask(64.0 * MIB)),
    Evidence(samples=10_000, first=NOW - 30 * 86400, last=NOW, memory_peak=60 * MIB),
)


def java(options: str) -> Workload:
    return workload(
        containers=(
            {
                "name": "web",
                "args": ["-jar", "app.jar"],
                "env": [{"name": "JAVA_TOOL_OPTIONS", "value": options}],
                "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}},
            },
        )
    )


def memory_for(found: Workload) -> int:
    assessment = assess(
        found, (), rules=RULES, learned=lambda _: SMALL, around=Surroundings(), source="test", now=NOW
    )
    (recommendation,) = assessment.recommendations
    return recommendation.resources.memory_request or 0


@pytest.mark.parametrize("options", ["-Xmx700m", "-XX:MaxRAMPercentage=35"])
def test_a_java_process_is_never_made_smaller_than_its_heap(options: str) -> None:
    assert memory_for(java(options)) >= 1.25 * 700 * MIB


def test_one_that_says_nothing_of_its_heap_is_sized_by_what_it_uses() -> None:
    assert memory_for(java("-server")) < 1.25 * 700 * MIB
