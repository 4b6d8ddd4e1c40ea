"""A template with thousands of containers, which fits into one object, must not stop the reconciles of others."""

from collections.abc import Sequence
from typing import Any

import pytest

from actuation.builders import workload
from trimtab.api.optimizationpolicy import OptimizationPolicySpec
from trimtab.kube.kinds.pods import Container, Resources
from trimtab.recommender import workload as module
from trimtab.recommender.workload import MAX_CONTAINERS, ClusterConstraints, recommend_workload
from trimtab.sizing.policy_rules import PolicyRules
from trimtab.sizing.recommend import recommend_pod
from trimtab.sizing.recommendation import Recommendation

SIZE = Resources(100, None, 1 << 28, 1 << 29)


@pytest.mark.parametrize("containers", [MAX_CONTAINERS, MAX_CONTAINERS + 1, 4000])
def test_pods_with_thousands_of_containers_are_not_sized(
    containers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each container is compared with all others: 4,000 took two seconds of the event loop, in each reconcile."""
    compared: list[int] = []

    def compare(pod: Sequence[Container], **given: Any) -> list[Recommendation]:
        compared.append(len(pod))
        return list(recommend_pod(pod, **given))

    monkeypatch.setattr(module, "recommend_pod", compare)
    hostile = workload(template={f"c{number}": SIZE for number in range(containers)})
    found = recommend_workload(
        hostile,
        [],
        rules=PolicyRules.from_spec(OptimizationPolicySpec()),
        estimate=lambda _: None,
        constraints=ClusterConstraints().constraints_for(hostile, replicas=1, hpas=[]),
        source="",
        now=1.7e9,
    )
    assert len(found.recommendations) <= MAX_CONTAINERS
    assert compared == ([containers] if containers <= MAX_CONTAINERS else [])
    assert ("more than 200 containers" in found.no_change_reason) is (containers > MAX_CONTAINERS)
