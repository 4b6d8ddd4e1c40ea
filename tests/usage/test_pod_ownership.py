"""Test the workload of a pod: by owner references while it exists, by name after its deletion."""

import itertools
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.kube.cache.projection import Projection
from trimtab.kube.kinds.metadata import Metadata, metadata_projection
from trimtab.kube.kinds.pods import Pod, pod_projection
from trimtab.kube.kinds.workloads import Workload, WorkloadKey, workload_projection
from trimtab.kube.rest.resources import (
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    STATEFUL_SETS,
    Resource,
)
from trimtab.usage.pod_ownership import PodNameIndex, PodOwnerIndex, WorkloadContainer

ROLLOUTS = Resource("argoproj.io", "v1alpha1", "rollouts", "Rollout")
LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_uids = itertools.count()


def project(shape: Projection[Any], written: dict[str, Any]) -> Any:
    return shape.project(msgspec.json.decode(json.dumps(written), type=shape.wire_type))


def metadata(name: str, owner: Any = None, kind: str = "") -> dict[str, Any]:
    references = [{"kind": kind, "name": owner.name, "uid": owner.uid, "controller": True}] if owner else []
    return {"name": name, "namespace": "shop", "uid": f"uid-{next(_uids)}", "ownerReferences": references}


def workload(resource: Resource, name: str, owner: Any = None, kind: str = "", **spec: Any) -> Workload:
    made: Workload = project(
        workload_projection(resource), {"metadata": metadata(name, owner, kind), "spec": spec}
    )
    return made


def controller(name: str, owner: Any = None, kind: str = "") -> Metadata:
    made: Metadata = project(metadata_projection(), {"metadata": metadata(name, owner, kind)})
    return made


def pod(name: str, owner: Any = None, kind: str = "", **spec: Any) -> Pod:
    made: Pod = project(pod_projection(), {"metadata": metadata(name, owner, kind), "spec": spec})
    return made


def key(kind: str, name: str) -> WorkloadKey:
    return WorkloadKey(kind, "shop", name)


def test_resolve_pod_returns_top_level_workload() -> None:
    web, cron = workload(DEPLOYMENTS, "web"), workload(CRON_JOBS, "nightly")
    rollout = workload(ROLLOUTS, "canary")
    of_web, of_canary = controller("web-6d4", web, "Deployment"), controller("canary-7f5", rollout, "Rollout")
    run = controller("nightly-28339200", cron, "CronJob")
    alone = controller("alone")
    owners = PodOwnerIndex(
        [web, cron, rollout], replica_sets=[of_web, of_canary, alone], jobs=[run, controller("once")]
    )
    assert owners.resolve_pod(pod("any", of_web, "ReplicaSet")) == key("Deployment", "web")
    assert owners.resolve_pod(pod("any", of_canary, "ReplicaSet")) == key("Rollout.argoproj.io", "canary")
    assert owners.resolve_pod(pod("any", run, "Job")) == key("CronJob", "nightly")
    assert owners.resolve_pod(pod("any", alone, "ReplicaSet")) == key("ReplicaSet", "alone")
    assert owners.resolve_pod(pod("bare")) == key("Pod", "bare")


def test_resolve_pod_returns_static_pod_itself() -> None:
    node = controller("node-1")
    assert PodOwnerIndex([]).resolve_pod(pod("etcd-node-1", node, "Node")) == key("Pod", "etcd-node-1")


def test_resolve_pod_ignores_owner_above_workload() -> None:
    operator = controller("kafka")
    brokers = workload(STATEFUL_SETS, "kafka-brokers", operator, "Kafka")
    assert PodOwnerIndex([brokers]).resolve_pod(pod("x", brokers, "StatefulSet")) == key(
        "StatefulSet", "kafka-brokers"
    )


def test_resolve_pod_names_unwatched_owner_of_replica_set() -> None:
    unseen = controller("canary")
    replicas = controller("canary-7f5", unseen, "Rollout")
    owners = PodOwnerIndex([], replica_sets=[replicas])
    assert owners.resolve_pod(pod("x", replicas, "ReplicaSet")) == key("Rollout", "canary")
    assert owners.resolve_pod(pod("x", unseen, "SparkApplication")) == key("SparkApplication", "canary")


def test_resolve_pod_uses_pod_name_if_replica_set_is_deleted() -> None:
    gone = controller("web-6d4b75cb6d")
    owners = PodOwnerIndex([workload(DEPLOYMENTS, "web")])
    assert owners.resolve_pod(pod("web-6d4b75cb6d-x7k2p", gone, "ReplicaSet")) == key("Deployment", "web")


def test_resolve_pod_ends_with_circular_owners() -> None:
    first = workload(DEPLOYMENTS, "first")
    second = workload(DEPLOYMENTS, "second", first, "Deployment")
    circle = PodOwnerIndex([second, workload(DEPLOYMENTS, "first", second, "Deployment")])
    assert circle.resolve_pod(pod("x", second, "Deployment")).kind == "Deployment"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("web-6d4b75cb6d-x7k2p", key("Deployment", "web")),
        ("web-api-6d4b75cb6d-x7k2p", key("Deployment", "web-api")),
        ("db-0", key("StatefulSet", "db")),
        ("db-17", key("StatefulSet", "db")),
        ("log-x7k2p", key("DaemonSet", "log")),
        ("nightly-28339200-x7k2p", key("CronJob", "nightly")),
        ("nightly-28339200-4-x7k2p", key("CronJob", "nightly")),
        ("once-x7k2p", key("Job", "once")),
        ("once-11-x7k2p", key("Job", "once")),
        ("canary-6d4b75cb6d-x7k2p", key("Rollout.argoproj.io", "canary")),
        ("web-6d4b75cb6d-apple", None),
        ("web-front-x7k2p", None),
        ("web", None),
        ("-x7k2p", None),
        ("", None),
    ],
)
def test_find_workload_parses_name_of_deleted_pod(name: str, expected: WorkloadKey | None) -> None:
    owners = PodOwnerIndex(
        [
            workload(DEPLOYMENTS, "web"),
            workload(DEPLOYMENTS, "web-api"),
            workload(STATEFUL_SETS, "db"),
            workload(DAEMON_SETS, "log"),
            workload(CRON_JOBS, "nightly"),
            workload(JOBS, "once"),
            workload(ROLLOUTS, "canary"),
        ]
    )
    assert owners.find_workload("shop", name) == expected
    assert owners.find_workload("bank", name) is None


def test_find_workload_returns_none_if_ambiguous() -> None:
    owners = PodOwnerIndex([workload(DAEMON_SETS, "log"), workload(JOBS, "log")])
    assert owners.find_workload("shop", "log-x7k2p") is None


def test_container_role_distinguishes_init_and_sidecar() -> None:
    template = {
        "containers": [{"name": "app"}],
        "initContainers": [{"name": "setup"}, {"name": "mesh", "restartPolicy": "Always"}],
    }
    web = workload(DEPLOYMENTS, "web", template={"spec": template})
    replicas = controller("web-6d4", web, "Deployment")
    injected = {"containers": [{"name": "app"}, {"name": "agent"}]}
    owners = PodOwnerIndex(
        [web], replica_sets=[replicas], pods=[pod("p", replicas, "ReplicaSet", **injected)]
    )
    roles = {
        name: owners.container_role(WorkloadContainer("shop", "Deployment", "web", name))
        for name in ("app", "setup", "mesh", "agent", "unheard-of")
    }
    assert roles == {"app": "main", "setup": "init", "mesh": "sidecar", "agent": "main", "unheard-of": "main"}
    assert owners.find_workload("shop", "p") == key("Deployment", "web")


NAMES = (
    st.text("abcdkx247-", min_size=1, max_size=62) | st.text("abcdkx247-", min_size=44, max_size=62)
).map(lambda text: f"a{text.rstrip('-')}"[:62])
RANDOM = st.text(LETTERS, min_size=5, max_size=5)
HASHES = st.text(LETTERS, min_size=1, max_size=10)


def generated(base: str, suffix: str) -> str:
    """Build a name as the API server does for generateName."""
    return base[:58] + suffix


@st.composite
def pod_of_workload(draw: st.DrawFn) -> tuple[WorkloadKey, str]:
    """Draw a workload and the name of one of its pods."""
    kind = draw(st.sampled_from(("Deployment", "ReplicaSet", "DaemonSet", "StatefulSet", "Job", "CronJob")))
    longest = {"StatefulSet": 56, "CronJob": 52}.get(kind, 62)
    name, suffix = draw(NAMES)[:longest].rstrip("-"), draw(RANDOM)
    match kind:
        case "Deployment":
            made = generated(f"{name}-{draw(HASHES)}-", suffix)
        case "StatefulSet":
            made = f"{name}-{draw(st.integers(0, 9999))}"
        case "CronJob":
            made = generated(f"{name}-{draw(st.integers(20_000_000, 40_000_000))}-", suffix)
        case _:
            made = generated(f"{name}-", suffix)
    return key(kind, name), made


@given(pod_of_workload())
def test_find_owner_finds_any_single_workload(case: tuple[WorkloadKey, str]) -> None:
    workload, pod_name = case
    names = PodNameIndex()
    names.add([workload])
    assert names.find_owner("shop", pod_name) == workload


@given(pod_of_workload(), st.lists(pod_of_workload(), max_size=8))
def test_find_owner_among_many_returns_possible_owner_or_none(
    case: tuple[WorkloadKey, str], others: list[tuple[WorkloadKey, str]]
) -> None:
    workload, pod_name = case
    crowd = {workload, *(other for other, _ in others)}
    names = PodNameIndex()
    names.add(crowd)
    found = names.find_owner("shop", pod_name)
    if found not in {workload, None}:
        assert found is not None
        alone = PodNameIndex()
        alone.add([found])
        assert alone.find_owner("shop", pod_name) == found
        assert len(found.name) >= len(workload.name)
