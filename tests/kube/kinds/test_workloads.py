"""Workloads of every kind are folded to the same few fields, as the real API server sends them."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.builders.records import project_object, workload
from trimtab.kube.kinds.heap_flags import HeapFlags
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.kinds.workloads import WorkloadKey, workload_projection
from trimtab.kube.rest.client import Object
from trimtab.kube.rest.resources import (
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    REPLICA_SETS,
    STATEFUL_SETS,
    Resource,
)

ROLLOUTS = Resource("argoproj.io", "v1alpha1", "rollouts", "Rollout")
TEMPLATE: Object = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {
        "containers": [
            {
                "name": "web",
                "image": "web",
                "resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}, "limits": {"memory": "2Gi"}},
                "resizePolicy": [{"resourceName": "memory", "restartPolicy": "RestartContainer"}],
            }
        ],
        "initContainers": [
            {"name": "log", "image": "log", "restartPolicy": "Always"},
            {"name": "wait", "image": "wait"},
        ],
    },
}
ONE_SHOT = {"template": {"spec": {**TEMPLATE["spec"], "restartPolicy": "OnFailure"}}}
SELECTOR = {"selector": {"matchLabels": {"app": "web"}}, "template": TEMPLATE}
SPECS: dict[Resource, Object] = {
    DEPLOYMENTS: {"replicas": 3, "paused": True, **SELECTOR},
    STATEFUL_SETS: {"replicas": 2, "serviceName": "web", "updateStrategy": {"type": "OnDelete"}, **SELECTOR},
    DAEMON_SETS: SELECTOR,
    REPLICA_SETS: {"replicas": 0, **SELECTOR},
    JOBS: {"parallelism": 4, "suspend": True, **ONE_SHOT},
    CRON_JOBS: {"schedule": "* * * * *", "suspend": True, "jobTemplate": {"spec": ONE_SHOT}},
}


def test_workload_keeps_only_heap_flags_of_command_and_environment() -> None:
    found = workload(
        containers=(
            {
                "name": "java",
                "command": ["sh", "-c"],
                "args": ["exec java -Dtoken=secret -Xmx512m -XX:MaxRAMPercentage=70.0 -jar app.jar"],
                "env": [
                    {"name": "JAVA_TOOL_OPTIONS", "value": "-Dpassword=secret -XX:MaxHeapSize=1g"},
                    {"name": "PASSWORD", "value": "secret"},
                    {"name": "HOST", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                ],
            },
            {"name": "node", "command": ["node", "--max-old-space-size", "300", "app.js"]},
            {"name": "go", "env": [{"name": "GOMEMLIMIT", "value": "900MiB"}]},
            {"name": "plain", "args": ["--verbose"]},
        )
    )
    assert found.heap_flags == (
        HeapFlags(
            "java", "-Xmx512m -XX:MaxRAMPercentage=70.0", (("JAVA_TOOL_OPTIONS", "-XX:MaxHeapSize=1g"),)
        ),
        HeapFlags("node", "--max-old-space-size 300", ()),
        HeapFlags("go", "", (("GOMEMLIMIT", "900MiB"),)),
    )


def test_workload_without_heap_flags_keeps_none() -> None:
    assert workload(containers=({"name": "web", "args": ["--port=80"]},)).heap_flags == ()


def test_workload_ignores_heap_flags_in_malformed_templates() -> None:
    assert workload(containers=({"name": "web", "args": "-Xmx512m"},)).heap_flags == ()


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({"requests": {"cpu": "1"}}, True),
        ({"limits": {"memory": "1Gi"}}, True),
        ({"limits": {"hugepages-2Mi": "4Mi"}}, False),
        ({}, False),
        ("small", False),
    ],
)
def test_workload_template_may_have_pod_level_resources(resources: object, *, expected: bool) -> None:
    spec = {"template": {"spec": {"resources": resources, "containers": [{"name": "web"}]}}}
    found = project_object(workload_projection(DEPLOYMENTS), {"metadata": {"name": "web"}, "spec": spec})
    assert found.has_pod_level_resources is expected
    assert [each.name for each in found.containers] == ["web"]


@pytest.mark.parametrize("resource", [JOBS, CRON_JOBS])
@pytest.mark.parametrize(
    ("counts", "pods"),
    [
        ({}, 1),
        ({"parallelism": 10}, 10),
        ({"parallelism": 0}, 0),
        ({"parallelism": 10, "completions": 3}, 3),
        ({"parallelism": 2, "completions": 8}, 2),
    ],
)
def test_workload_counts_the_parallel_pods_of_jobs(
    resource: Resource, counts: dict[str, int], pods: int
) -> None:
    spec: Object = {**counts, **ONE_SHOT}
    if resource == CRON_JOBS:
        spec = {"jobTemplate": {"spec": spec}}
    found = project_object(workload_projection(resource), {"metadata": {"name": "web"}, "spec": spec})
    assert found.replicas == pods


@pytest.mark.parametrize(("kind", "finished"), [("Complete", True), ("Failed", True), ("Suspended", False)])
def test_workload_job_that_ran_to_completion_is_finished(kind: str, *, finished: bool) -> None:
    metadata, status = (
        {"name": "web", "namespace": "shop"},
        {"conditions": [{"type": kind, "status": "True"}]},
    )
    assert (
        project_object(workload_projection(JOBS), {"metadata": metadata, "status": status}).finished
        == finished
    )


@pytest.mark.parametrize(
    ("resource", "spec", "status", "rolling"),
    [
        (DEPLOYMENTS, {"replicas": 3}, {"replicas": 3, "updatedReplicas": 3}, False),
        (DEPLOYMENTS, {"replicas": 3}, {"replicas": 4, "updatedReplicas": 2}, True),
        (DEPLOYMENTS, {"replicas": 9}, {"replicas": 3, "updatedReplicas": 3}, False),
        (
            STATEFUL_SETS,
            {"replicas": 3, "updateStrategy": {"rollingUpdate": {"partition": 2}}},
            {"replicas": 3, "updatedReplicas": 1, "currentRevision": "a", "updateRevision": "b"},
            False,
        ),
        (
            STATEFUL_SETS,
            {"replicas": 3},
            {"replicas": 3, "updatedReplicas": 1, "currentRevision": "a", "updateRevision": "b"},
            True,
        ),
        (DAEMON_SETS, {}, {"currentNumberScheduled": 4, "updatedNumberScheduled": 3}, True),
        (
            DAEMON_SETS,
            {"updateStrategy": {"type": "OnDelete"}},
            {"currentNumberScheduled": 4, "updatedNumberScheduled": 3},
            False,
        ),
    ],
)
def test_workload_rolls_out_while_older_pods_will_be_replaced(
    resource: Resource, spec: Object, status: Object, *, rolling: bool
) -> None:
    metadata = {"name": "web", "namespace": "shop", "generation": 1}
    found = project_object(
        workload_projection(resource), {"metadata": metadata, "spec": spec, "status": status}
    )
    assert found.is_rolling_out == rolling


@pytest.mark.parametrize(("kind", "stays"), [("RollingUpdate", 2), ("OnDelete", 0)])
def test_workload_stateful_set_has_its_partition(kind: str, stays: int) -> None:
    update = {"type": kind, "rollingUpdate": {"partition": 2}}
    assert (
        project_object(workload_projection(STATEFUL_SETS), {"spec": {"updateStrategy": update}}).partition
        == stays
    )


def test_amounts_in_a_template_of_somebody_elses_kind_may_be_numbers() -> None:
    resources = {"requests": {"cpu": 0.5, "memory": 1 << 30}, "limits": {"cpu": 1, "memory": "2Gi"}}
    template = {"spec": {"containers": [{"name": "web", "resources": resources}]}}
    (container,) = project_object(workload_projection(ROLLOUTS), {"spec": {"template": template}}).containers
    assert container.resources == Resources(500, 1000, 1 << 30, 2 << 30)


@pytest.mark.parametrize(
    "malformed",
    [
        {"resources": None},
        {"resources": {"requests": None, "limits": {"cpu": None}}},
        {"resizePolicy": None, "restartPolicy": None},
    ],
    ids=str,
)
def test_workload_of_a_custom_kind_may_have_null_in_its_template(malformed: Object) -> None:
    """`resources:` with nothing behind it is kept as null where a kind lets any template in."""
    template = {"spec": {"containers": [{"name": "web", **malformed}], "initContainers": None}}
    (container,) = project_object(workload_projection(ROLLOUTS), {"spec": {"template": template}}).containers
    assert container.resources == Resources()


def test_workload_reads_argo_rollouts_with_generation_as_text() -> None:
    manifest = {
        "metadata": {"name": "web", "namespace": "shop", "generation": 7},
        "spec": {"replicas": 2, "strategy": {"canary": {}}, "template": TEMPLATE},
        "status": {"observedGeneration": "7", "replicas": 2, "updatedReplicas": 2, "readyReplicas": 1},
    }
    found = project_object(workload_projection(ROLLOUTS), manifest)
    assert found.key == WorkloadKey("Rollout.argoproj.io", "shop", "web")
    assert (found.is_spec_observed, found.replicas, found.updated_replicas, found.ready_replicas) == (
        True,
        2,
        2,
        1,
    )
    assert found.containers[0].name == "web"


malformed = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(("spec", "type", "a")), inner)
    ),
    max_leaves=4,
)


@given(template=malformed, strategy=malformed, selector=malformed)
def test_workload_of_a_custom_kind_may_have_fields_of_any_form(
    template: Any, strategy: Any, selector: Any
) -> None:
    spec = {"template": template, "updateStrategy": strategy, "selector": selector}
    found = project_object(
        workload_projection(ROLLOUTS), {"metadata": {"name": "web", "namespace": "shop"}, "spec": spec}
    )
    assert found.name == "web"


def test_jobs_run_now_and_then() -> None:
    assert workload().is_long_running
    assert not workload(resource=CRON_JOBS).is_long_running
    theirs = workload(resource=Resource("batch.volcano.sh", "v1alpha1", "jobs", "Job"))
    assert not theirs.is_long_running
    assert not theirs.key.is_long_running


def test_workloads_of_one_template_share_their_containers() -> None:
    shape = workload_projection(DEPLOYMENTS)
    first, second = (
        project_object(
            shape, {"metadata": {"name": name, "namespace": "shop"}, "spec": {"template": TEMPLATE}}
        )
        for name in ("a", "b")
    )
    assert first.containers is second.containers
    assert len(msgspec.json.encode(workload())) < 1000


@given(
    spec=malformed,
    status=malformed,
    replicas=malformed,
    ready=malformed,
    containers=malformed,
    resources=malformed,
)
def test_custom_kind_is_read_with_any_content_of_its_fields(
    spec: Any, status: Any, replicas: Any, ready: Any, containers: Any, resources: Any
) -> None:
    metadata = {"name": "web", "namespace": "shop"}
    pods = {"containers": [{"name": "web", "resources": resources}, *([containers] if containers else [])]}
    for theirs in (ROLLOUTS, *(Resource("example.org", "v1", each.plural, each.kind) for each in SPECS)):
        shape = workload_projection(theirs)
        fields = {"replicas": replicas, "template": {"spec": pods}, "jobTemplate": replicas}
        for manifest in (
            {"metadata": metadata, "spec": spec, "status": status},
            {"metadata": metadata, "spec": fields, "status": {"ready": ready, "active": ready}},
        ):
            assert project_object(shape, manifest).name == "web"


def test_custom_kind_named_after_a_built_in_one_is_read_like_it() -> None:
    theirs = workload_projection(Resource("apps.kruise.io", "v1beta1", "statefulsets", "StatefulSet"))
    manifest: dict[str, Any] = {
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"replicas": 3, "updateStrategy": {"rollingUpdate": {"partition": 2}}},
        "status": {"replicas": 3, "updatedReplicas": 0, "currentRevision": "a", "updateRevision": "b"},
    }
    found = project_object(theirs, manifest)
    assert (found.partition, found.is_rolling_out) == (2, True)
    malformed = {**manifest, "status": {**manifest["status"], "readyReplicas": True}}
    assert project_object(theirs, malformed).is_rolling_out
