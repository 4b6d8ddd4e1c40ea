"""Every kind is read by its own schema: whatever the real API server may send in a field that is read is understood.

The values are generated from the OpenAPI document that the server publishes, so that a field of another type, another
name or another nullability shows here and not as an object that is missing from a cache.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from functools import partial
from typing import Any

import trimtab.kube
from trimtab.kube.cache.projection import Projection
from trimtab.kube.kinds.custom import (
    custom_resource_projection,
    intent_projection,
    kpi_profile_projection,
    node_report_projection,
    qos_policy_projection,
)
from trimtab.kube.kinds.hpas import hpa_projection
from trimtab.kube.kinds.metadata import metadata_projection
from trimtab.kube.kinds.nodes import node_projection
from trimtab.kube.kinds.pods import pod_projection
from trimtab.kube.kinds.policies import policy_projection
from trimtab.kube.kinds.quotas import limit_range_projection, resource_quota_projection
from trimtab.kube.kinds.vpas import vpa_projection
from trimtab.kube.kinds.workloads import BUILT_IN, workload_projection
from trimtab.kube.rest.resources import (
    HPAS,
    INTENTS,
    KPI_PROFILES,
    LIMIT_RANGES,
    NAMESPACES,
    NODE_METRICS,
    NODE_QOS_POLICIES,
    NODES,
    OPTIMIZATION_POLICIES,
    PODS,
    REPLICA_SETS,
    RESOURCE_QUOTAS,
    VPAS,
    Resource,
)
from trimtab.node.informer.pods import PodProjector

PROJECTIONS: list[tuple[Resource, Callable[[], Projection[Any]]]] = [
    *((resource, partial(workload_projection, resource)) for resource in BUILT_IN),
    (PODS, pod_projection),
    (PODS, lambda: PodProjector().projection),
    (NODES, node_projection),
    (NAMESPACES, metadata_projection),
    (REPLICA_SETS, metadata_projection),
    (HPAS, hpa_projection),
    (VPAS, vpa_projection),
    (LIMIT_RANGES, limit_range_projection),
    (RESOURCE_QUOTAS, resource_quota_projection),
    (OPTIMIZATION_POLICIES, policy_projection),
    (INTENTS, intent_projection),
    (KPI_PROFILES, kpi_profile_projection),
    (NODE_METRICS, node_report_projection),
    (NODE_QOS_POLICIES, qos_policy_projection),
]


def test_projections_are_all_checked_against_the_published_schema() -> None:
    modules = [
        importlib.import_module(found.name)
        for found in pkgutil.walk_packages(trimtab.kube.__path__, "trimtab.kube.")
    ]
    makers = {
        made
        for module in modules
        for _, made in inspect.getmembers(module, inspect.isfunction)
        if str(inspect.signature(made).return_annotation).startswith("Projection[")
    }
    checked = {make.func if isinstance(make, partial) else make for _, make in PROJECTIONS}
    assert makers - checked == {custom_resource_projection}, (
        "what all custom resources of ours share is checked with each of them"
    )
