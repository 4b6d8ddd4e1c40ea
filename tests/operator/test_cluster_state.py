"""Changes of workloads enqueue them, except for recommendations: two leaders would answer each other's for ever."""

from __future__ import annotations

import asyncio

import pytest

from harness.builders.records import workload
from trimtab.actuation.change_annotations import CHANGE_ANNOTATION, RECOMMENDATION_ANNOTATION
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.resources import DEPLOYMENTS, HPAS, LIMIT_RANGES, OPTIMIZATION_POLICIES, Resource
from trimtab.operator.cluster_state import ClusterState
from trimtab.testing import FakeInformerSet

OLD = {RECOMMENDATION_ANNOTATION: "298Mi"}


@pytest.mark.parametrize(
    ("resource", "namespace"), [(HPAS, "shop"), (LIMIT_RANGES, "shop"), (OPTIMIZATION_POLICIES, "system")]
)
def test_records_are_outdated_where_what_bounds_a_workload_is_not_watched(
    resource: Resource, namespace: str
) -> None:
    informers = FakeInformerSet()
    state = ClusterState(informers, operator_namespace="system")
    assert state.outdated_reason(workload()) == ""
    informers.forbid(resource, namespace)
    assert state.outdated_reason(workload()).startswith(
        f"{resource} in namespace {namespace} cannot be watched"
    )
    other = state.outdated_reason(workload(namespace="lab"))
    assert bool(other) is (namespace == "system")


@pytest.mark.parametrize(
    ("annotations", "labels", "count"),
    [
        ({RECOMMENDATION_ANNOTATION: "373Mi"}, {}, 0),
        ({}, {}, 1),
        ({RECOMMENDATION_ANNOTATION: "373Mi", CHANGE_ANNOTATION: "x"}, {}, 1),
        ({RECOMMENDATION_ANNOTATION: "373Mi"}, {"tier": "back"}, 1),
        (OLD, {"tier": "back"}, 1),
    ],
    ids=["another recommendation", "none", "a change, too", "a label, too", "a label"],
)
async def test_cluster_state_enqueues_no_workload_that_has_only_another_recommendation(
    annotations: dict[str, str], labels: dict[str, str], count: int
) -> None:
    informers, enqueued = FakeInformerSet(), list[WorkloadKey]()
    state = ClusterState(informers, enqueue=enqueued.append)
    informers.put(DEPLOYMENTS, workload(annotations=OLD))
    running = asyncio.create_task(state.run())
    await state.wait_synced()
    await asyncio.sleep(0)
    enqueued.clear()
    informers.put(DEPLOYMENTS, workload(annotations=annotations, labels=labels, resourceVersion="2"))
    running.cancel()
    assert len(enqueued) == count
