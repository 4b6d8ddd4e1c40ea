"""A VPA that names us gets what its resource policy allows, as its own recommender would, and only when it changes."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.builders.records import project_object, workload
from trimtab.api.quantity import parse_memory_bytes, parse_millicores
from trimtab.kube.kinds.hpas import AutoscalerTarget
from trimtab.kube.kinds.vpas import VerticalPodAutoscaler, vpa_projection
from trimtab.kube.kinds.workloads import Workload
from trimtab.kube.rest.client import Object
from trimtab.operator.vpa.status import build_vpa_status, is_trimtab_vpa
from trimtab.sizing.proposal import Proposal, ResourceTarget

MIB = 1 << 20
NOW = 1_800_000_000.0
WEB = workload(
    containers=({"name": "web", "resources": {"limits": {"cpu": "1", "memory": "300Mi"}}}, {"name": "log"})
)
SHAPE = vpa_projection()


def vpa(
    *policies: Object, status: Object | None = None, generation: int = 1, **spec: Any
) -> VerticalPodAutoscaler:
    manifest = {
        "metadata": {"name": "web", "namespace": "shop", "uid": "u", "generation": generation},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "recommenders": [{"name": "trimtab"}],
            "resourcePolicy": {"containerPolicies": policies},
            **spec,
        },
        "status": status or {},
    }
    return project_object(SHAPE, manifest)


def proposal(cpu: float = 500.0, memory: float = 400.0 * MIB) -> Proposal:
    """Half as much is too little, twice as much too much."""
    return Proposal(
        cpu=ResourceTarget(cpu, cpu / 2, cpu * 2),
        memory=ResourceTarget(memory, memory / 2, memory * 2),
        strategy="trimtab",
    )


def status(
    of: VerticalPodAutoscaler,
    *,
    target: Workload | None = WEB,
    pods: int = 1,
    now: float = NOW,
    **proposals: Proposal,
) -> Object:
    found = build_vpa_status(of, target, proposals=proposals, pods=pods, now=now)
    assert found is not None
    return found


def container_recommendations(found: Object) -> dict[str, Object]:
    entries = found.get("recommendation", {}).get("containerRecommendations", ())
    return {entry["containerName"]: entry for entry in entries}


def conditions(found: Object) -> dict[str, tuple[str, str]]:
    return {one["type"]: (one["status"], one.get("reason", "")) for one in found["conditions"]}


@pytest.mark.parametrize(
    ("target", "group"),
    [
        ({"kind": "Deployment"}, "apps"),
        ({"apiVersion": "extensions/v1beta1", "kind": "Deployment"}, "apps"),
        ({"apiVersion": "batch/v1beta1", "kind": "CronJob"}, "batch"),
        ({"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout"}, "argoproj.io"),
    ],
)
def test_vpa_target_of_a_built_in_kind_is_found_without_its_group(target: Object, group: str) -> None:
    assert vpa(targetRef={**target, "name": "web"}).target == AutoscalerTarget(target["kind"], group, "web")


def test_vpa_is_ours_only_if_it_names_our_recommender() -> None:
    assert is_trimtab_vpa(vpa())
    assert not is_trimtab_vpa(vpa(recommenders=[]))
    assert not is_trimtab_vpa(vpa(recommenders=[{"name": "default"}]))


def test_vpa_status_has_a_proposal_with_its_bounds() -> None:
    found = status(vpa(), web=proposal(), log=proposal(cpu=10.0))
    assert container_recommendations(found)["web"] == {
        "containerName": "web",
        "target": {"cpu": "500m", "memory": "400Mi"},
        "lowerBound": {"cpu": "250m", "memory": "200Mi"},
        "upperBound": {"cpu": "1", "memory": "800Mi"},
        "uncappedTarget": {"cpu": "500m", "memory": "400Mi"},
    }
    assert container_recommendations(found)["log"]["target"]["cpu"] == "10m"
    assert conditions(found) == {"RecommendationProvided": ("True", "")}
    assert found["observedGeneration"] == 1


def test_vpa_target_is_rounded_as_under_a_policy() -> None:
    found = container_recommendations(status(vpa(), web=proposal(cpu=238.6)))["web"]
    assert (found["target"]["cpu"], found["lowerBound"]["cpu"]) == ("240m", "120m")


@pytest.mark.parametrize(("mode", "gets"), [("Off", "100m"), ("Initial", "500m")])
def test_vpa_that_restarts_no_pods_gets_the_target_of_a_strategy_that_covers_the_day(
    mode: str, gets: str
) -> None:
    lasting = ResourceTarget(100.0, 80.0, 120.0, recent=(100.0, 500.0), covers_stabilization=True)
    of_mode = msgspec.structs.replace(vpa(), updates_pods=mode != "Off")
    found = container_recommendations(status(of_mode, web=Proposal(cpu=lasting, strategy="trimtab")))
    assert found["web"]["target"]["cpu"] == gets


def test_vpa_status_has_the_highest_proposal_of_the_day() -> None:
    night = ResourceTarget(100.0, 80.0, 120.0, recent=(100.0, 90.0, 500.0, 0.0))
    morning = ResourceTarget(600.0, 480.0, 720.0, recent=(500.0, 90.0))
    by_night, by_day = (
        container_recommendations(status(vpa(), web=Proposal(cpu=ask, strategy="trimtab")))["web"]
        for ask in (night, morning)
    )
    assert {field: by_night[field]["cpu"] for field in ("target", "lowerBound", "upperBound")} == {
        "target": "500m",
        "lowerBound": "400m",
        "upperBound": "600m",
    }
    assert by_day["target"]["cpu"] == "600m", "more is recommended at once"


def test_vpa_status_keeps_bounds_and_reports_the_uncapped_target() -> None:
    policy = {"containerName": "web", "minAllowed": {"cpu": "600m"}, "maxAllowed": {"memory": "300Mi"}}
    entry = container_recommendations(status(vpa(policy), web=proposal()))["web"]
    assert entry["target"] == {"cpu": "600m", "memory": "300Mi"}
    assert entry["lowerBound"] == {"cpu": "600m", "memory": "200Mi"}
    assert entry["upperBound"] == {"cpu": "1", "memory": "300Mi"}
    assert entry["uncappedTarget"] == {"cpu": "500m", "memory": "400Mi"}


def test_vpa_default_policy_applies_to_containers_without_their_own() -> None:
    found = status(
        vpa({"containerName": "*", "mode": "Off"}, {"containerName": "web"}), web=proposal(), log=proposal()
    )
    assert set(container_recommendations(found)) == {"web"}


def test_vpa_status_has_only_controlled_resources() -> None:
    found = status(vpa({"containerName": "web", "controlledResources": ["memory"]}), web=proposal())
    assert all(
        set(amounts) == {"memory"}
        for field, amounts in container_recommendations(found)["web"].items()
        if field != "containerName"
    )


def test_vpa_status_keeps_requests_below_limits_that_stay() -> None:
    policy = {"containerName": "*", "controlledValues": "RequestsOnly"}
    found = container_recommendations(status(vpa(policy), web=proposal(cpu=900.0), log=proposal()))
    assert found["web"]["target"] == {"cpu": "900m", "memory": "300Mi"}
    assert found["web"]["upperBound"] == {"cpu": "1", "memory": "300Mi"}
    assert found["log"]["target"] == {"cpu": "500m", "memory": "400Mi"}


def test_vpa_status_gives_the_reason_without_data() -> None:
    unknown = Proposal(strategy="trimtab")
    assert conditions(status(vpa(), web=unknown)) == {"RecommendationProvided": ("False", "NotEnoughData")}
    assert conditions(status(vpa(), pods=0)) == {
        "NoPodsMatched": ("True", "NoPodsMatched"),
        "RecommendationProvided": ("False", "NoPodsMatched"),
    }
    assert conditions(status(vpa(), target=None, pods=0)) == {
        "ConfigUnsupported": ("True", "TargetNotFound"),
        "RecommendationProvided": ("False", "TargetNotFound"),
    }


def test_vpa_status_keeps_the_last_recommendation_within_the_current_policy() -> None:
    before = status(vpa(), web=proposal(), log=proposal())
    policies = (
        {"containerName": "log", "mode": "Off"},
        {"containerName": "web", "maxAllowed": {"cpu": "400m"}},
    )
    found = status(vpa(*policies, status=before, generation=2), now=NOW + 60)
    assert container_recommendations(found).keys() == {"web"}
    assert container_recommendations(found)["web"]["target"] == {"cpu": "400m", "memory": "400Mi"}
    lifted = status(vpa(status=found, generation=3))
    assert container_recommendations(lifted)["web"]["target"]["cpu"] == "500m"
    assert conditions(lifted) == {"RecommendationProvided": ("True", "")}


def test_vpa_status_drops_a_deleted_container() -> None:
    before = status(vpa(), web=proposal(), log=proposal())
    only_web = workload(containers=({"name": "web"},))
    assert container_recommendations(status(vpa(status=before), target=only_web)).keys() == {"web"}


def test_conditions_of_others_and_the_time_of_our_own_are_kept() -> None:
    before = status(vpa(), web=proposal())
    before["conditions"].append({"type": "FetchingHistory", "status": "True"})
    found = status(vpa(status=before), now=NOW + 900, web=proposal(cpu=600.0))
    assert found["conditions"] == sorted(before["conditions"], key=lambda one: one["type"])


def test_vpa_status_is_not_written_for_the_observed_generation_alone() -> None:
    before = status(vpa(), web=proposal())
    del before["observedGeneration"]
    assert build_vpa_status(vpa(status=before), WEB, proposals={"web": proposal()}, pods=1, now=NOW) is None


def test_recommended_memory_is_readable_unless_the_policy_sets_it() -> None:
    uneven = 400.0 * MIB + 1
    found = container_recommendations(status(vpa(), web=proposal(memory=uneven), log=proposal(memory=uneven)))
    assert found["log"]["target"]["memory"] == found["log"]["uncappedTarget"]["memory"] == "401Mi"
    bounded = vpa({"containerName": "log", "maxAllowed": {"memory": 300_000_001}})
    assert (
        container_recommendations(status(bounded, log=proposal(memory=uneven)))["log"]["target"]["memory"]
        == "300000001"
    )


amounts = st.one_of(st.floats(0.0, 1e15), st.just(math.nan), st.just(math.inf))
asks = st.builds(ResourceTarget, amounts, amounts, amounts)
allowed = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from(("0", "100m", "2", 3)),
        "memory": st.sampled_from(("100Mi", "1Gi", 5_000_000)),
    },
)
some_policies = st.fixed_dictionaries(
    {"containerName": st.sampled_from(("web", "*"))},
    optional={
        "mode": st.sampled_from(("Auto", "Off")),
        "minAllowed": allowed,
        "maxAllowed": allowed,
        "controlledResources": st.lists(st.sampled_from(("cpu", "memory")), unique=True),
        "controlledValues": st.sampled_from(("RequestsOnly", "RequestsAndLimits")),
    },
)


@given(policies=st.lists(some_policies, max_size=2), cpu=asks, memory=asks)
def test_vpa_status_stays_within_the_resource_policy_and_is_written_once(
    policies: list[Object], cpu: ResourceTarget, memory: ResourceTarget
) -> None:
    proposals = {"web": Proposal(cpu=cpu, memory=memory, strategy="trimtab")}
    first = vpa(*policies)
    found = status(first, web=proposals["web"])
    policy = first.container_policy("web")
    for entry in container_recommendations(found).values():
        assert not policy.is_off
        for field in ("target", "lowerBound", "upperBound"):
            assert set(entry[field]) <= set(policy.controlled_resources)
            for resource, text in entry[field].items():
                amount = parse_millicores(text) if resource == "cpu" else parse_memory_bytes(text)
                most, least = getattr(policy.max_allowed, resource), getattr(policy.min_allowed, resource)
                assert most is None or amount <= most
                bound = getattr(WEB.containers[0].resources, f"{resource}_limit")
                capped = not policy.controls_limits and amount == bound
                assert least is None or amount >= least or amount == most or capped
    kept = msgspec.json.decode(msgspec.json.encode(found))
    again = vpa(*policies, status=kept)
    assert build_vpa_status(again, WEB, proposals=proposals, pods=1, now=NOW + 60) is None
