"""From a pod to its workload and back, whatever the owner references say."""

from typing import Any

from harness.builders.records import project_object, workload
from trimtab.kube.cache.store import Cache
from trimtab.kube.kinds.metadata import Metadata, metadata_projection
from trimtab.kube.kinds.ownership import OWNER_INDEX, Ownership, owner_uid
from trimtab.kube.kinds.workloads import Workload
from trimtab.kube.rest.resources import DEPLOYMENTS, STATEFUL_SETS, Resource

FLEETS = Resource("example.com", "v1", "fleets", "Fleet")


def owned_by(owner: Workload | Metadata, kind: str) -> dict[str, Any]:
    return {"ownerReferences": [{"kind": kind, "name": owner.name, "uid": owner.uid, "controller": True}]}


def replica_set(owner: Workload, *, name: str = "web-1") -> Metadata:
    found = {"name": name, "namespace": "shop", "uid": name, "resourceVersion": "1"}
    return project_object(metadata_projection(), {"metadata": {**found, **owned_by(owner, owner.kind)}})


def ownership(*workloads: Workload, between: tuple[Metadata, ...] = ()) -> Ownership:
    replica_sets: Cache[Metadata] = Cache({OWNER_INDEX: owner_uid})
    for record in between:
        replica_sets.put(record)
    found = Ownership(replica_sets)
    for resource in (DEPLOYMENTS, STATEFUL_SETS, FLEETS):
        cache: Cache[Workload] = Cache({OWNER_INDEX: owner_uid})
        for one in workloads:
            if one.resource == resource:
                cache.put(one)
        found.add(resource, cache)
    return found


def test_ownership_finds_objects_above_and_below_a_deployment() -> None:
    web = workload("web")
    made = replica_set(web)
    found = ownership(web, between=(made,))
    assert found.find_top_workload(made) is web
    assert found.collect_owned(web) == [web, made]
    assert list(found.iter_top_level("shop")) == [web]


def test_ownership_includes_a_workload_owned_by_a_custom_workload() -> None:
    fleet = workload("fleet", resource=FLEETS)
    web = workload("web", **owned_by(fleet, "Fleet"))
    made = replica_set(web)
    found = ownership(fleet, web, between=(made,))
    assert found.find_top_workload(made) is fleet
    assert found.collect_owned(fleet) == [fleet, web, made]
    assert list(found.iter_top_level()) == [fleet]
    assert set(found) == {fleet, web}


def test_ownership_skips_owners_that_hold_no_pods() -> None:
    fleet = workload("fleet", resource=FLEETS)
    web = workload("web", **owned_by(fleet, "Application"))
    assert list(ownership(web).iter_top_level()) == [web]


def test_ownership_ignores_a_namesake_of_a_deleted_owner() -> None:
    former, web = workload("web", uid="former"), workload("web")
    made = replica_set(former)
    found = ownership(web, between=(made,))
    assert found.find_top_workload(made) is None
    assert found.collect_owned(web) == [web]


def test_ownership_ends_at_a_cycle() -> None:
    first, second = workload("first"), workload("second")
    first = workload("first", **owned_by(second, "Deployment"))
    second = workload("second", **owned_by(first, "Deployment"))
    found = ownership(first, second)
    assert found.find_top_workload(first) is not None
    assert set(found.collect_owned(first)) == {first, second}
