"""The port on the real API server: who owns what, what is a conflict, and every kind of failure."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
import yaml

from actuation.builders import MIB, desired_change
from harness.builders.objects import pod_status
from harness.cluster.cluster import Cluster
from harness.faults import faults
from harness.faults.faultproxy import FaultProxy
from harness.faults.faults import Asked, Fault
from integration.actuation.conftest import Driver
from trimtab.actuation.decide.observation import DesiredChange
from trimtab.actuation.executor import ChangeExecutor, ReconcileResult
from trimtab.actuation.kube_cluster import KubeCluster, ReadRecords
from trimtab.api.duration import Duration
from trimtab.api.optimizationpolicy import Canary, WorkloadState
from trimtab.kube import errors
from trimtab.kube.auth import load_connection
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.client import Client, Object, PatchType
from trimtab.kube.rest.resources import CRON_JOBS, DEPLOYMENTS, PODS, STATEFUL_SETS, Resource
from trimtab.kube.rest.retry import RetryPolicy
from trimtab.kube.runtime.event_recorder import EventRecorder

BEFORE = Resources(100, 200, 64 * MIB, 128 * MIB)
AFTER = Resources(250, 500, 96 * MIB, 192 * MIB)
BRIEF = Canary(observation=Duration.from_seconds(1))


def template(name: str = "web", *, side: bool = True) -> Object:
    resources = {
        "requests": {"cpu": "100m", "memory": "64Mi"},
        "limits": {"cpu": "200m", "memory": "128Mi"},
    }
    container = {"name": name, "image": "busybox:1", "resources": resources}
    others = [{"name": "side", "image": "busybox:1"}] if side else []
    return {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [container, *others], "restartPolicy": "Always"},
    }


def deployment(namespace: str, **spec: Any) -> Object:
    return {
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "web"}},
            "template": template(),
            **spec,
        },
    }


def cron_job(namespace: str) -> Object:
    of_job = template()
    of_job["spec"]["restartPolicy"] = "Never"
    return {
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": of_job}}},
    }


def owners(found: Object) -> dict[str, str]:
    return {
        f"{entry['manager']} {entry['operation']}": str(entry["fieldsV1"])
        for entry in found["metadata"]["managedFields"]
    }


def is_applied(report: ReconcileResult) -> bool:
    return report.annotations is not None and report.annotations.applied is not None


async def test_kube_cluster_owns_annotations_and_sizes_separately_and_changes_nothing_else(
    client: Client, live: KubeCluster, namespace: str
) -> None:
    made = deployment(namespace)
    made["metadata"]["annotations"] = {"team": "payments"}
    await client.create(DEPLOYMENTS, made, namespace=namespace)
    key = WorkloadKey("Deployment", namespace, "web")

    async def now() -> Any:
        return await live.get_workload(key)

    async def annotate(annotations: dict[str, str]) -> None:
        while True:
            with suppress(errors.Conflict):  # its controller writes too
                await live.annotate(await now(), annotations)
                return

    async def patch_template() -> None:
        while True:
            with suppress(errors.Conflict):
                await live.patch_template(await now(), {"web": AFTER}, take_ownership=True)
                return

    await patch_template()
    await annotate({"trimtab.io/change": "a"})
    await annotate({"trimtab.io/applied": "b"})
    found = await client.get(DEPLOYMENTS, "web", namespace=namespace)
    annotations = found["metadata"]["annotations"]
    assert (annotations["team"], annotations["trimtab.io/applied"]) == ("payments", "b")
    assert "trimtab.io/change" not in annotations
    containers = {each["name"]: each for each in found["spec"]["template"]["spec"]["containers"]}
    assert containers["web"]["resources"]["requests"] == {"cpu": "250m", "memory": "96Mi"}
    assert containers.keys() == {"web", "side"}
    assert "f:resources" in owners(found)["trimtab.io Apply"]
    assert "f:annotations" not in owners(found)["trimtab.io Apply"]
    assert "f:spec" not in owners(found)["trimtab.io-marks Apply"]


async def test_kube_cluster_learns_a_kind_that_is_installed_later(
    client: Client, live: KubeCluster, namespace: str
) -> None:
    await client.create(CRON_JOBS, cron_job(namespace), namespace=namespace)
    found: list[Resource] = []
    events = EventRecorder(
        client, component="trimtab.io/test", instance="test", now=lambda: datetime.now(UTC)
    )
    later = KubeCluster(client, events, kinds=lambda: found)
    key = WorkloadKey("CronJob", namespace, "web")
    assert await later.get_workload(key) is None
    found.append(CRON_JOBS)
    known = await later.get_workload(key)
    assert known
    assert [each.name for each in known.containers] == ["web", "side"]


async def test_kube_cluster_does_not_overwrite_unseen_annotations(
    client: Client, live: KubeCluster, namespace: str
) -> None:
    await client.create(CRON_JOBS, cron_job(namespace), namespace=namespace)
    key = WorkloadKey("CronJob", namespace, "web")
    seen = await live.get_workload(key)
    assert seen
    await live.annotate(seen, {"trimtab.io/change": "first"})
    with pytest.raises(errors.Conflict):
        await live.annotate(seen, {"trimtab.io/change": "second"})
    again = await live.get_workload(key)
    assert again
    assert dict(again.annotations) == {"trimtab.io/change": "first"}


async def test_kube_cluster_does_not_recreate_a_deleted_workload(
    client: Client, live: KubeCluster, namespace: str
) -> None:
    await client.create(CRON_JOBS, cron_job(namespace), namespace=namespace)
    key = WorkloadKey("CronJob", namespace, "web")
    seen = await live.get_workload(key)
    assert seen
    await client.delete(CRON_JOBS, "web", namespace=namespace)
    with pytest.raises((errors.Conflict, errors.NotFound)):
        await live.annotate(seen, {"trimtab.io/change": "late"})
    with pytest.raises((errors.Conflict, errors.NotFound)):
        await live.patch_template(seen, {"web": AFTER}, take_ownership=True)
    assert await live.get_workload(key) is None


async def test_kube_cluster_neither_resizes_nor_evicts_a_pod_that_changed_since_it_was_read(
    client: Client, live: KubeCluster, namespace: str
) -> None:
    await client.create(DEPLOYMENTS, deployment(namespace), namespace=namespace)
    workload = await live.get_workload(WorkloadKey("Deployment", namespace, "web"))
    assert workload
    while not (found := await live.list_pods(workload)):
        await asyncio.sleep(0.05)
    (seen,) = found
    label = {"metadata": {"labels": {"seen": "by-another"}}}
    await client.patch(PODS, seen.name, label, type=PatchType.MERGE, namespace=namespace)
    with pytest.raises(errors.Conflict):
        await live.resize(seen, {"web": AFTER})
    with pytest.raises(errors.Conflict):
        await live.evict(seen)
    (again,) = await live.list_pods(workload)
    await live.resize(again, {"web": AFTER})
    (resized,) = await live.list_pods(workload)
    assert {each.name: each.resources for each in resized.containers}["web"] == AFTER


async def test_kube_cluster_removes_a_limit_from_a_template(
    client: Client, live: KubeCluster, namespace: str
) -> None:
    await client.create(CRON_JOBS, cron_job(namespace), namespace=namespace)
    key = WorkloadKey("CronJob", namespace, "web")
    seen = await live.get_workload(key)
    assert seen
    unlimited = Resources(150, None, 64 * MIB, 128 * MIB)
    with pytest.raises(errors.Conflict):
        await live.patch_template(seen, {"web": unlimited}, take_ownership=False)
    await live.patch_template(seen, {"web": unlimited}, take_ownership=True)
    again = await live.get_workload(key)
    assert again
    assert {each.name: each.resources for each in again.containers}["web"] == unlimited
    found = await client.get(CRON_JOBS, "web", namespace=namespace)
    assert "f:resources" in owners(found)["trimtab.io Apply"]


async def test_kube_cluster_does_not_remove_a_limit_of_another_manager_silently(
    client: Client, live: KubeCluster, namespace: str
) -> None:
    await client.create(CRON_JOBS, cron_job(namespace), namespace=namespace)
    seen = await live.get_workload(WorkloadKey("CronJob", namespace, "web"))
    assert seen
    only_the_limit = Resources(100, None, 64 * MIB, 128 * MIB)
    with pytest.raises(errors.FieldManagerConflict, match="takeOwnership"):
        await live.patch_template(seen, {"web": only_the_limit}, take_ownership=False)


async def test_kube_cluster_leaves_a_co_owned_template_whole_with_a_reason(
    client: Client, cluster: Cluster, driver: Driver, namespace: str
) -> None:
    theirs = {"apiVersion": "batch/v1", "kind": "CronJob"} | cron_job(namespace)
    cluster.kubectl(
        "apply", "--server-side", "--field-manager=argocd", "-f", "-", stdin=yaml.safe_dump(theirs)
    )
    key = WorkloadKey("CronJob", namespace, "web")
    ours = Resources(150, 200, 64 * MIB, 128 * MIB)
    await driver.until(key, desired_change({"web": ours}, canary=BRIEF, take_ownership=True), is_applied)
    driver.ahead += 7200
    # The request is ours alone by now, the limit is theirs too.
    without = desired_change(
        {"web": Resources(120, None, 64 * MIB, 128 * MIB)}, canary=BRIEF, allow_recreate=True
    )
    report = await driver.until(key, without, lambda report: report.state is WorkloadState.SKIPPED)
    assert "another field manager owns these fields" in report.reason
    found = await client.get(CRON_JOBS, "web", namespace=namespace)
    containers = found["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert next(each["resources"] for each in containers if each["name"] == "web") == {
        "requests": {"cpu": "150m", "memory": "64Mi"},
        "limits": {"cpu": "200m", "memory": "128Mi"},
    }


async def test_kube_cluster_lists_only_pods_of_the_workload(
    client: Client, live: KubeCluster, namespace: str
) -> None:
    alone = {"metadata": {"name": "alone", "labels": {"app": "web"}}, "spec": template()["spec"]}
    await client.create(PODS, alone, namespace=namespace)
    made = await client.create(DEPLOYMENTS, deployment(namespace), namespace=namespace)
    seen = await live.get_workload(WorkloadKey("Deployment", namespace, "web"))
    assert seen
    assert seen.uid == made["metadata"]["uid"]
    while not (found := await live.list_pods(seen)):
        await asyncio.sleep(0.05)
    assert [pod.name.startswith("web-") for pod in found] == [True]


async def test_kube_cluster_cannot_remove_limits_added_in_place(
    client: Client, live: KubeCluster, namespace: str
) -> None:
    """A limit is neither added nor removed in place, because a revert would be impossible."""
    body = {"metadata": {"name": "alone"}, "spec": template()["spec"]}
    await client.create(PODS, body, namespace=namespace)
    with pytest.raises(errors.Invalid, match="cannot be removed"):
        await client.resize(
            "alone", [{"name": "web", "resources": {"limits": {"cpu": None}}}], namespace=namespace
        )


async def test_executor_leaves_a_field_to_its_gitops_manager_and_names_it(
    client: Client, cluster: Cluster, driver: Driver, namespace: str
) -> None:
    theirs = {"apiVersion": "batch/v1", "kind": "CronJob"} | cron_job(namespace)
    cluster.kubectl(
        "apply", "--server-side", "--field-manager=argocd", "-f", "-", stdin=yaml.safe_dump(theirs)
    )
    key = WorkloadKey("CronJob", namespace, "web")
    wanted = desired_change({"web": AFTER}, canary=BRIEF)
    report = await driver.until(key, wanted, lambda report: report.state is WorkloadState.SKIPPED)
    assert 'with "argocd"' in report.reason
    found = await client.get(CRON_JOBS, "web", namespace=namespace)
    assert "trimtab.io Apply" not in owners(found)

    driver.ahead += 7200
    taking = desired_change({"web": AFTER}, canary=BRIEF, take_ownership=True)
    await driver.until(key, taking, is_applied)
    found = await client.get(CRON_JOBS, "web", namespace=namespace)
    assert "f:resources" in owners(found)["trimtab.io Apply"]


# The seed's tables: what each failure of the API server leads to


@pytest.fixture
async def faulty_cluster(fault_proxy: FaultProxy) -> AsyncIterator[KubeCluster]:
    """Connect through a failing proxy, with a client that never retries by itself."""
    connection = load_connection(kubeconfig=fault_proxy.kubeconfig)
    async with Client(connection, retry=RetryPolicy(attempts=1)) as client:
        events = EventRecorder(
            client, component="trimtab.io/test", instance="test", now=lambda: datetime.now(UTC)
        )
        yield KubeCluster(client, events)


def _is_write(asked: Asked) -> bool:
    return asked.method == "PATCH"


@pytest.mark.parametrize(
    "fault",
    [
        faults.status(500),
        faults.status(503),
        faults.status(429, retry_after=1),
        faults.status(409),
        faults.drop(),
        faults.lose_answer(),
    ],
    ids=lambda fault: fault.name,
)
async def test_executor_retries_a_temporary_failure(
    client: Client, faulty_cluster: KubeCluster, fault_proxy: FaultProxy, namespace: str, fault: Fault
) -> None:
    await client.create(CRON_JOBS, cron_job(namespace), namespace=namespace)
    driver = Driver(faulty_cluster)
    fault_proxy.fail_next(fault, match=_is_write)
    key = WorkloadKey("CronJob", namespace, "web")
    await driver.until(key, desired_change({"web": AFTER}, canary=BRIEF, take_ownership=True), is_applied)
    found = await faulty_cluster.get_workload(key)
    assert found
    assert {each.name: each.resources for each in found.containers}["web"] == AFTER


async def test_executor_does_not_retry_forbidden_requests(
    client: Client, faulty_cluster: KubeCluster, fault_proxy: FaultProxy, namespace: str
) -> None:
    await client.create(CRON_JOBS, cron_job(namespace), namespace=namespace)
    fault_proxy.fail_next(faults.status(403), match=_is_write)
    key = WorkloadKey("CronJob", namespace, "web")
    records = ReadRecords(faulty_cluster)
    await records.read(key)
    actuator = ChangeExecutor(faulty_cluster, records, may_write=lambda: True)
    report = await actuator.reconcile(key, desired_change({"web": AFTER}), now=1)
    assert report
    assert (report.state, report.requeue_at) == (WorkloadState.FAILED, None)
    assert sum(map(_is_write, fault_proxy.asked)) == 1


async def test_executor_drops_a_deleted_workload(live: KubeCluster, namespace: str) -> None:
    key, records = WorkloadKey("CronJob", namespace, "gone"), ReadRecords(live)
    await records.read(key)
    actuator = ChangeExecutor(live, records, may_write=lambda: True)
    assert await actuator.reconcile(key, desired_change(), now=1) is None


async def test_executor_writes_nothing_after_losing_the_lease(
    client: Client, faulty_cluster: KubeCluster, fault_proxy: FaultProxy, namespace: str
) -> None:
    await client.create(CRON_JOBS, cron_job(namespace), namespace=namespace)
    leads = iter([True, False])
    key = WorkloadKey("CronJob", namespace, "web")
    records = ReadRecords(faulty_cluster)
    await records.read(key)
    actuator = ChangeExecutor(faulty_cluster, records, may_write=lambda: next(leads))
    report = await actuator.reconcile(key, desired_change({"web": AFTER}, take_ownership=True), now=1)
    assert report
    assert "lost its leader lease" in report.reason
    assert sum(map(_is_write, fault_proxy.asked)) == 1
    successor = Driver(faulty_cluster)
    await successor.until(key, desired_change({"web": AFTER}, canary=BRIEF, take_ownership=True), is_applied)


# Other writers


ADMISSION = "admissionregistration.k8s.io"
MUTATIONS = Resource(
    ADMISSION, "v1", "mutatingadmissionpolicies", "MutatingAdmissionPolicy", namespaced=False
)
BINDINGS = Resource(
    ADMISSION, "v1", "mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", namespaced=False
)


@pytest.fixture
async def set_back(client: Client, namespace: str) -> AsyncIterator[None]:
    """Add an admission policy that sets the first container of a template or a pod to 100m on every write."""
    for name, group, resource, place in (
        ("templates", "batch", "cronjobs", "jobTemplate/spec/template/spec/containers"),
        ("pods", "", "pods/resize", "containers"),
    ):
        rule = {
            "apiGroups": [group],
            "apiVersions": ["v1"],
            "operations": ["UPDATE"],
            "resources": [resource],
        }
        path = f"/spec/{place}/0/resources/requests/cpu"
        patch = f'[JSONPatch{{op: "replace", path: "{path}", value: "100m"}}]'
        metadata = {"name": f"{namespace}-{name}"}
        spec = {
            "matchConstraints": {"resourceRules": [rule]},
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
            "reinvocationPolicy": "Never",
        }
        await client.create(MUTATIONS, {"metadata": metadata, "spec": spec})
        here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
        bound = {"policyName": metadata["name"], "matchResources": here}
        await client.create(BINDINGS, {"metadata": metadata, "spec": bound})
    yield
    for name in ("templates", "pods"):
        for kind in (BINDINGS, MUTATIONS):
            await client.delete(kind, f"{namespace}-{name}")


async def test_executor_does_not_repeat_a_write_that_is_reverted_at_once(
    client: Client, live: KubeCluster, driver: Driver, namespace: str, set_back: None
) -> None:
    await client.create(CRON_JOBS, cron_job(namespace), namespace=namespace)
    await client.create(DEPLOYMENTS, deployment(namespace), namespace=namespace)
    key = WorkloadKey("CronJob", namespace, "web")
    more = msgspec.structs.replace(BEFORE, cpu_request=150)

    async def is_in_force() -> bool:
        """The server takes a while to know of a new rule."""
        asked = [{"name": "web", "resources": {"requests": {"cpu": "150m"}}}]
        body = {"spec": {"jobTemplate": {"spec": {"template": {"spec": {"containers": asked}}}}}}
        answer = await client.patch(
            CRON_JOBS, "web", body, type=PatchType.STRATEGIC, namespace=namespace, dry_run=True
        )
        return "150m" not in str(answer["spec"])

    async with asyncio.timeout(60):
        while not await is_in_force():
            await asyncio.sleep(0.2)
    taking = desired_change({"web": more}, canary=BRIEF, take_ownership=True)
    report = await driver.until(key, taking, lambda report: report.state is WorkloadState.SKIPPED)
    assert "the template got web: cpu 100m (limit 200m)" in report.reason
    workload = await live.get_workload(WorkloadKey("Deployment", namespace, "web"))
    assert workload
    with pytest.raises(errors.Invalid, match="the pod got web: cpu 100m"):
        while True:
            for found in await live.list_pods(workload):
                with suppress(errors.Conflict):  # the scheduler writes too
                    await live.resize(found, {"web": more})
            await asyncio.sleep(0.05)


async def _attend(client: Client, namespace: str, fares: Callable[[str], bool]) -> list[str]:
    """Report each pod as running or crashing by its memory request, as a kubelet would; return the requests."""
    pods = await client.list_objects(PODS, namespace=namespace)
    asked = [pod["spec"]["containers"][0]["resources"]["requests"]["memory"] for pod in pods]
    for pod, memory in zip(pods, asked, strict=True):
        status = pod_status(pod)
        if not fares(memory):
            status["conditions"] = [{"type": "Ready", "status": "False"}]
            for each in status["containerStatuses"]:
                each |= {"ready": False, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
        kind, body = PatchType.STRATEGIC, {"status": status}
        with suppress(errors.NotFound):  # it has gone since it was listed
            await client.patch(
                PODS, pod["metadata"]["name"], body, type=kind, namespace=namespace, subresource="status"
            )
    return asked


async def test_executor_resizes_a_statefulset_whose_controller_waits_for_crashing_pods(
    client: Client, driver: Driver, namespace: str
) -> None:
    """It would wait for ever: a pod that is not ready is not replaced, whatever its template says."""
    body = deployment(namespace, replicas=2, serviceName="web", template=template(side=False))
    await client.create(STATEFUL_SETS, body, namespace=namespace)
    terms: dict[str, Any] = {
        "canary": BRIEF,
        "allow_recreate": True,
        "allow_in_place_resize": False,
        "take_ownership": True,
    }

    async def until(wanted: DesiredChange, state: str, sizes: str, *, well: str) -> None:
        key = WorkloadKey("StatefulSet", namespace, "web")
        report, asked = None, [""]
        async with asyncio.timeout(180):
            while report is None or report.state != state or asked != [sizes, sizes]:
                await driver.records.read(key)
                report = await driver.actuator.reconcile(key, wanted, now=int(time.time()) + driver.ahead)
                asked = await _attend(client, namespace, lambda memory: memory == well)
                await asyncio.sleep(0.1)

    async with asyncio.timeout(60):
        while await _attend(client, namespace, lambda _: True) != ["64Mi", "64Mi"]:
            await asyncio.sleep(0.1)
    await _attend(client, namespace, lambda _: False)
    more = desired_change({"web": AFTER}, is_urgent=True, **terms)
    await until(more, WorkloadState.APPLIED, "96Mi", well="96Mi")
    driver.ahead += 86_400
    less = desired_change({"web": BEFORE}, needed_memory={"web": MIB}, **terms)
    await until(less, WorkloadState.REVERTED, "96Mi", well="96Mi")
