"""Every kind is read by its own schema: whatever the real API server may send in a field that is read is understood.

The values are generated from the OpenAPI document that the server publishes, so that a field of another type, another
name or another nullability shows here and not as an object that is missing from a cache.
"""

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.cluster.cluster import Cluster
from integration.kube.kinds.openapi import Schemas, UnknownFieldError, assert_reads
from kube.kinds.test_schemas import PROJECTIONS
from trimtab.kube.cache.projection import Projection
from trimtab.kube.kinds.heap_flags import TemplateWire
from trimtab.kube.kinds.workloads import BUILT_IN
from trimtab.kube.rest.resources import (
    DEPLOYMENTS,
    NODE_METRICS,
    NODES,
    Resource,
)
from trimtab.usage.sources import kubelet, nodemetric

CASES = [
    pytest.param(resource, make(), id=f"{resource}-{make().wire_type.__module__.removeprefix('trimtab.')}")
    for resource, make in PROJECTIONS
]


class _SpecWithHeaps(msgspec.Struct, frozen=True):
    template: TemplateWire = TemplateWire()


class _WithHeaps(msgspec.Struct, frozen=True):
    """A workload as the look for heaps reads it."""

    spec: _SpecWithHeaps = _SpecWithHeaps()


@pytest.mark.parametrize(
    ("resource", "wire"),
    [(NODES, kubelet.KubeletNode), (NODE_METRICS, nodemetric._NodeMetric), (DEPLOYMENTS, _WithHeaps)],
    ids=lambda case: str(case) if isinstance(case, Resource) else case.__qualname__,
)
@settings(suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_wire_struct_reads_every_value_that_the_published_schema_allows(
    cluster: Cluster, resource: Resource, wire: type[Any], data: st.DataObject
) -> None:
    assert_reads(wire, data.draw(_objects(cluster, resource, wire)))


@pytest.mark.parametrize(("resource", "shape"), CASES)
@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_projection_reads_every_value_that_the_published_schema_allows(
    cluster: Cluster, vpa_kinds: None, resource: Resource, shape: Projection[Any], data: st.DataObject
) -> None:
    sent = data.draw(_objects(cluster, resource, shape.wire_type))
    assert_reads(shape.wire_type, sent)
    shape.project(msgspec.json.decode(msgspec.json.encode(sent), type=shape.wire_type))


_KNOWN: dict[tuple[Resource, type[Any]], st.SearchStrategy[Any]] = {}


def _objects(cluster: Cluster, resource: Resource, wire: type[Any]) -> st.SearchStrategy[Any]:
    if (resource, wire) not in _KNOWN:
        cluster.learn()
        schemas = Schemas.published_schemas(cluster, resource)
        _KNOWN[resource, wire] = schemas.values(schemas.kind(resource), wire, path=resource.kind)
    return _KNOWN[resource, wire]


class _Misspelt(msgspec.Struct, rename="camel", frozen=True):
    observed_generations: int = 0


class _MisspeltWire(msgspec.Struct):
    status: _Misspelt = _Misspelt()


class _Mistyped(msgspec.Struct, frozen=True):
    active: int = 0


class _MistypedWire(msgspec.Struct):
    status: _Mistyped = _Mistyped()


def test_schemas_show_a_field_that_is_misspelt_or_of_another_type(cluster: Cluster) -> None:
    """The check itself: it has to see the mistakes that it is there for."""
    cron_jobs = BUILT_IN[-1]
    schemas = Schemas.published_schemas(cluster, cron_jobs)
    kind = schemas.kind(cron_jobs)
    with pytest.raises(UnknownFieldError, match=r"CronJob\.status\.observedGenerations"):
        schemas.values(kind, _MisspeltWire, path="CronJob")

    @settings(database=None)
    @given(sent=schemas.values(kind, _MistypedWire))
    def read(sent: Any) -> None:
        assert_reads(_MistypedWire, sent)

    with pytest.raises(msgspec.ValidationError, match="array"):
        read()
