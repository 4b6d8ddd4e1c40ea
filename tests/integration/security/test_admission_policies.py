"""A taken-over operator or agent, with the real token of its account, writes nothing but what the product writes.

RBAC grants whole objects; the ValidatingAdmissionPolicies of deploy/ bound the fields. Each attack here is a request that
the account's rights allow, so without the policies the API server does it.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from harness.builders.objects import node, pod, pod_status
from harness.cluster.account import DEPLOY, account
from harness.cluster.cluster import Cluster
from trimtab.actuation.kube_cluster import KubeCluster
from trimtab.actuation.pod_options import OptionsAnnotation, OptionsPhase, PodOptions
from trimtab.kube.auth import load_connection
from trimtab.kube.errors import Conflict, KubeError
from trimtab.kube.kinds.pods import Resources, pod_projection
from trimtab.kube.kinds.workloads import BUILT_IN, WorkloadKey
from trimtab.kube.rest.client import Client, Object, PatchType
from trimtab.kube.rest.rbac import SYSTEM_NAMESPACE
from trimtab.kube.rest.resources import NODE_METRICS, NODES, PODS, Resource
from trimtab.kube.rest.retry import RateLimiter, RetryPolicy
from trimtab.kube.runtime.event_recorder import EventRecorder
from trimtab.node.qos.evictor import EVICTION_LABELS, build_api_evict
from trimtab.node.strategies import Eviction
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.webhook import registration
from trimtab.operator.webhook.certificates import SECRETS
from trimtab.operator.webhook.lifecycle import WebhookLifecycle

REFUSED = "ValidatingAdmissionPolicy"
ACCOUNTS = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/serviceaccounts"
HAS_TEMPLATE = {each.kind: each for each in BUILT_IN}
ROLLING = ("Deployment", "StatefulSet", "DaemonSet")
LABELS = {"app": "web"}
SIZE = {"requests": {"cpu": "200m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "64Mi"}}
POD_SPEC: Object = {
    "containers": [
        {"name": "web", "image": "web", "resources": SIZE, "env": [{"name": "A", "value": "1"}]},
        {"name": "log", "image": "log"},
    ],
    "initContainers": [
        {"name": "proxy", "image": "proxy", "restartPolicy": "Always", "resources": SIZE},
        {"name": "wait", "image": "wait"},
    ],
    "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}],
    "volumes": [{"name": "data", "emptyDir": {}}],
}
ONE_SHOT: Object = {
    "suspend": True,
    "template": {"metadata": {"annotations": {"team": "web"}}, "spec": POD_SPEC | {"restartPolicy": "Never"}},
}
SPECS: dict[str, Object] = {
    "Deployment": {"replicas": 0},
    "StatefulSet": {"replicas": 0, "serviceName": "web"},
    "DaemonSet": {},
    "ReplicaSet": {"replicas": 0},
    "Job": ONE_SHOT,
    "CronJob": {
        "schedule": "0 0 1 1 *",
        "suspend": True,
        "jobTemplate": {"metadata": {"labels": LABELS}, "spec": ONE_SHOT},
    },
}


def build_workload(kind: str) -> Object:
    """Return a workload, with labels of its own: else one of another kind would adopt its pods."""
    spec = SPECS[kind]
    if not {"template", "jobTemplate"} & spec.keys():
        labels = {"app": kind.lower()}
        template = {"metadata": {"labels": labels, "annotations": {"team": "web"}}, "spec": POD_SPEC}
        spec = spec | {"selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": "web", "labels": LABELS, "annotations": {"team": "web"}}, "spec": spec}


@asynccontextmanager
async def as_user(cluster: Cluster, folder: Path, token: str) -> AsyncIterator[Client]:
    kubeconfig: dict[str, Any] = yaml.safe_load(cluster.kubeconfig.read_text())
    kubeconfig["users"][0]["user"] = {"token": token}
    (folder / "as-user").write_text(yaml.safe_dump(kubeconfig))
    connection = load_connection(kubeconfig=folder / "as-user")
    rate = RateLimiter(per_second=1000, burst=1000)
    async with Client(connection, rate=rate, retry=RetryPolicy(attempts=1)) as client:
        yield client


async def rejection(request: Any) -> str:
    """Return why the API server refused a request; empty if it did not."""
    try:
        await request
    except KubeError as error:
        return str(error)
    return ""


async def wait_enforced(attack: Any) -> None:
    """Wait until the API server knows the policies, which takes it a moment."""
    until = time.monotonic() + 30
    while REFUSED not in (found := await rejection(attack())):
        assert time.monotonic() < until, (
            f"the policies are not enforced; the attack gave: {found or 'success'}"
        )
        await asyncio.sleep(0.2)


# The operator


@pytest.fixture(scope="module")
def operator_token(cluster: Cluster) -> Iterator[str]:
    cluster.learn()
    with account(cluster, "operator"):
        body = {"spec": {"expirationSeconds": 3600}}
        yield cluster.call("POST", f"{ACCOUNTS}/trimtab-operator/token", body)["status"]["token"]


@pytest.fixture
async def operator(
    cluster: Cluster, operator_token: str, namespace: str, tmp_path: Path
) -> AsyncIterator[Client]:
    """A client with the operator's token; the policies are enforced for a workload of each kind."""
    for resource in BUILT_IN:
        cluster.call("POST", resource.path(namespace=namespace), build_workload(resource.kind))
    async with as_user(cluster, tmp_path, operator_token) as client:
        await wait_enforced(
            lambda: merge(client, HAS_TEMPLATE["Deployment"], namespace, {"metadata": {"labels": {"a": "b"}}})
        )
        yield client


async def merge(client: Client, resource: Resource, namespace: str, body: Object) -> None:
    kind = PatchType.STRATEGIC
    await client.patch(resource, "web", body, type=kind, namespace=namespace, dry_run=True)


def in_template(resource: Resource, template: Object) -> Object:
    spec: Object = {"template": template}
    return {"spec": {"jobTemplate": {"spec": spec}} if resource.kind == "CronJob" else spec}


def in_pod(**spec: Any) -> Object:
    return {"spec": spec}


def in_container(**fields: Any) -> Object:
    return in_pod(containers=[{"name": "web", **fields}])


TEMPLATE_ATTACKS: dict[str, Object] = {
    "image": in_container(image="evil"),
    "image of a sidecar": in_pod(initContainers=[{"name": "proxy", "image": "evil"}]),
    "command": in_container(command=["sh", "-c", "evil"]),
    "environment": in_container(env=[{"name": "LD_PRELOAD", "value": "/evil.so"}]),
    "privileged": in_container(securityContext={"privileged": True}),
    "mount": in_container(volumeMounts=[{"name": "data", "mountPath": "/etc"}]),
    "probe": in_container(livenessProbe={"exec": {"command": ["evil"]}}),
    "devices": in_container(resources={"limits": {"example.com/gpu": "8"}}),
    "disk": in_container(resources={"requests": {"ephemeral-storage": "1Ti"}}),
    "huge pages": in_container(resources={"limits": {"hugepages-2Mi": "1Gi"}}),
    "devices of a sidecar": in_pod(
        initContainers=[{"name": "proxy", "resources": {"limits": {"example.com/gpu": "8"}}}]
    ),
    "resource claim": in_container(resources={"claims": [{"name": "gpu"}]}),
    "another container": in_pod(containers=[{"name": "evil", "image": "evil"}]),
    "another init container": in_pod(initContainers=[{"name": "evil", "image": "evil"}]),
    "container less": in_pod(containers=[{"name": "log", "$patch": "delete"}]),
    "container moved to the first init container": in_pod(
        containers=[{"name": "log", "$patch": "delete"}],
        initContainers=[
            *[each for each in POD_SPEC["containers"] if each["name"] == "log"],
            {"name": "proxy"},
        ],
        **{"$setElementOrder/initContainers": [{"name": "log"}, {"name": "proxy"}]},
    ),
    "host path": in_pod(volumes=[{"name": "root", "hostPath": {"path": "/"}}]),
    "host network": in_pod(hostNetwork=True),
    "host pids": in_pod(hostPID=True),
    "account": in_pod(serviceAccountName="admin"),
    "node": in_pod(nodeName="n1"),
    "pod-level resources": in_pod(resources={"requests": {"cpu": "9"}}),
    "priority": in_pod(priorityClassName="system-node-critical"),
    "label": {"metadata": {"labels": {"evil": "yes"}}},
    "annotation": {"metadata": {"annotations": {"team": "evil"}}},
    "annotation less": {"metadata": {"annotations": {"team": None}}},
}
OBJECT_ATTACKS: dict[str, Object] = {
    "label": {"metadata": {"labels": {"evil": "yes"}}},
    "label less": {"metadata": {"labels": {"app": None}}},
    "annotation": {"metadata": {"annotations": {"team": "evil"}}},
    "annotation less": {"metadata": {"annotations": {"team": None}}},
    "finalizer": {"metadata": {"finalizers": ["example.com/evil"]}},
    "owner": {
        "metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "evil", "uid": "evil"}]}
    },
}
SPEC_ATTACKS: dict[str, Object] = {
    "Deployment": {"replicas": 100},
    "StatefulSet": {"replicas": 100},
    "ReplicaSet": {"replicas": 100},
    "DaemonSet": {"minReadySeconds": 9},
    "Job": {"suspend": False},
    "CronJob": {"schedule": "* * * * *"},
}


async def test_operator_account_cannot_change_pods_of_workloads(operator: Client, namespace: str) -> None:
    done = {}
    for resource in BUILT_IN:
        if resource.kind == "Job":  # its template is immutable anyway, but for the resources
            continue
        for name, attack in TEMPLATE_ATTACKS.items():
            said = await rejection(merge(operator, resource, namespace, in_template(resource, attack)))
            if REFUSED not in said:
                done[f"{resource.kind}: {name}"] = said
    assert done == {}


def _other_patches(resource: Resource, namespace: str) -> dict[str, tuple[PatchType, Any]]:
    """Return an attack by each other type of patch, and odd names of annotations."""
    pod_path = "/spec/jobTemplate/spec/template/spec" if resource.kind == "CronJob" else "/spec/template/spec"
    kind = {"apiVersion": resource.api_version, "kind": resource.kind}
    metadata = {"name": "web", "namespace": namespace}
    named: Object = kind | {"metadata": metadata}
    evil = {"name": "web", "image": "evil", "resources": SIZE}
    applied = named | in_template(resource, in_pod(containers=[evil]))
    return {
        "JSON, image": (
            PatchType.JSON,
            [{"op": "replace", "path": f"{pod_path}/containers/0/image", "value": "evil"}],
        ),
        "JSON, moved": (
            PatchType.JSON,
            [
                {"op": "copy", "from": f"{pod_path}/containers/0", "path": f"{pod_path}/containers/-"},
                {"op": "replace", "path": f"{pod_path}/containers/2/name", "value": "evil"},
            ],
        ),
        "JSON, order": (
            PatchType.JSON,
            [{"op": "move", "from": f"{pod_path}/containers/0", "path": f"{pod_path}/containers/1"}],
        ),
        "JSON, whole metadata": (
            PatchType.JSON,
            [{"op": "replace", "path": "/metadata/labels", "value": {"trimtab.io/evil": "yes"}}],
        ),
        "JSON, finalizer": (
            PatchType.JSON,
            [{"op": "add", "path": "/metadata/finalizers", "value": ["trimtab.io/evil"]}],
        ),
        "merge, containers": (PatchType.MERGE, in_template(resource, in_pod(containers=[evil]))),
        "merge, nothing left": (PatchType.MERGE, {"metadata": {"annotations": None}}),
        "apply": (PatchType.APPLY, applied),
        "apply, finalizer": (
            PatchType.APPLY,
            named | {"metadata": {**metadata, "finalizers": ["trimtab.io/evil"]}},
        ),
        "upper case": (PatchType.MERGE, {"metadata": {"annotations": {"Trimtab.io/evil": "x"}}}),
        "another domain": (PatchType.MERGE, {"metadata": {"annotations": {"trimtab.io.evil.com/a": "x"}}}),
        "no domain": (PatchType.MERGE, {"metadata": {"annotations": {"trimtab.io": "x"}}}),
        "a subdomain": (PatchType.MERGE, {"metadata": {"annotations": {"a.trimtab.io/a": "x"}}}),
    }


@pytest.mark.parametrize("dry_run", [True, False])
async def test_operator_account_cannot_change_workloads_by_another_type_of_patch(
    operator: Client, cluster: Cluster, namespace: str, *, dry_run: bool
) -> None:
    done = {}
    for resource in BUILT_IN:
        path = resource.path(namespace=namespace, name="web")
        for name, (kind, body) in _other_patches(resource, namespace).items():
            # The template of a Job is immutable anyway.
            if resource.kind == "Job" and ("template" in str(body) or kind is PatchType.JSON):
                continue
            before = cluster.call("GET", path)
            options: dict[str, Any] = {"force": True} if kind is PatchType.APPLY else {}
            patching = operator.patch(
                resource, "web", body, type=kind, namespace=namespace, dry_run=dry_run, **options
            )
            said, after = await rejection(patching), cluster.call("GET", path)
            if REFUSED not in said:
                done[f"{resource.kind}: {name}"] = said
            # The controllers write at the same time: a status, and an annotation with a revision.
            assert _owned(after) == _owned(before)
    assert done == {}


def _owned(found: Object) -> Object:
    """Return what its owner wrote of a workload."""
    metadata = {name: found["metadata"].get(name) for name in ("labels", "finalizers", "ownerReferences")}
    annotations = {name: text for name, text in found["metadata"]["annotations"].items() if name == "team"}
    return {"metadata": metadata, "annotations": annotations, "spec": found["spec"]}


async def test_operator_account_changes_nothing_else_by_subresources(
    operator: Client, cluster: Cluster, namespace: str
) -> None:
    deployments = HAS_TEMPLATE["Deployment"]
    evil: Object = {
        "labels": {"evil": "yes"},
        "annotations": {"evil": "yes"},
        "finalizers": ["example.com/evil"],
    }
    before = cluster.call("GET", deployments.path(namespace=namespace, name="web"))
    patch = {"metadata": evil, "spec": {"replicas": 0, "template": {"spec": {"hostNetwork": True}}}}
    await rejection(
        operator.patch(
            deployments, "web", patch, type=PatchType.MERGE, namespace=namespace, subresource="scale"
        )
    )
    status = operator.patch(
        deployments, "web", patch, type=PatchType.MERGE, namespace=namespace, subresource="status"
    )
    assert "cannot patch resource" in await rejection(status)
    assert _owned(cluster.call("GET", deployments.path(namespace=namespace, name="web"))) == _owned(before)
    machine = node(f"machine-{namespace}")
    cluster.call("POST", NODES.path(), machine)
    running = pod("web-0", namespace=namespace, node=machine["metadata"]["name"], owned=False)
    found = cluster.call("POST", PODS.path(namespace=namespace), running)
    found["status"] = pod_status(running)
    cluster.call("PUT", f"{PODS.path(namespace=namespace, name='web-0')}/status", found)
    found = cluster.call("GET", PODS.path(namespace=namespace, name="web-0"))
    name = found["spec"]["containers"][0]["name"]
    attacks: list[Object] = [
        {"metadata": evil},
        {"metadata": {"ownerReferences": OBJECT_ATTACKS["owner"]["metadata"]["ownerReferences"]}},
        {"spec": {"tolerations": [{"operator": "Exists"}]}},
        {"spec": {"activeDeadlineSeconds": 1}},
        {"spec": {"ephemeralContainers": [{"name": "evil", "image": "evil"}]}},
        {"spec": {"containers": [{"name": name, "image": "evil"}]}},
        {"spec": {"containers": [{"name": name, "resources": {"limits": {"example.com/gpu": "1"}}}]}},
    ]
    for attack in attacks:
        for subresource in ("resize", "ephemeralcontainers", "status", None):
            kind = PatchType.STRATEGIC
            await rejection(
                operator.patch(PODS, "web-0", attack, type=kind, namespace=namespace, subresource=subresource)
            )
    now = cluster.call("GET", PODS.path(namespace=namespace, name="web-0"))
    for part in (found, now):
        part["metadata"] = {
            name: text
            for name, text in part["metadata"].items()
            if name not in {"managedFields", "resourceVersion", "generation"}
        }
    assert (now["metadata"], now["spec"]) == (found["metadata"], found["spec"])
    cluster.call("DELETE", NODES.path(name=machine["metadata"]["name"]))


async def test_operator_account_cannot_change_workloads_otherwise(operator: Client, namespace: str) -> None:
    done = {}
    for resource in BUILT_IN:
        for name, attack in OBJECT_ATTACKS.items():
            said = await rejection(merge(operator, resource, namespace, attack))
            if REFUSED not in said:
                done[f"{resource.kind}: {name}"] = said
        said = await rejection(merge(operator, resource, namespace, {"spec": SPEC_ATTACKS[resource.kind]}))
        if REFUSED not in said:
            done[f"{resource.kind}: spec"] = said
    for attack in ({"metadata": {"labels": {"evil": "yes"}}}, {"spec": {"suspend": False}}):
        said = await rejection(
            merge(operator, HAS_TEMPLATE["CronJob"], namespace, {"spec": {"jobTemplate": attack}})
        )
        if REFUSED not in said:
            done[f"CronJob: template of Jobs {attack}"] = said
    assert done == {}


async def test_admission_policies_allow_the_operators_own_writes(
    operator: Client, cluster: Cluster, namespace: str
) -> None:
    live = KubeCluster(operator, EventRecorder(operator, component="test", instance="test", now=_now))
    smaller = Resources(100, None, 32 << 20, 48 << 20)  # without the limit of CPU that it has
    for resource in BUILT_IN:
        key = WorkloadKey(resource.kind, namespace, "web")

        async def change(act: Any, key: WorkloadKey = key) -> None:
            while True:  # its controller may write to it at the same time
                found = await live.get_workload(key)
                assert found is not None
                try:
                    await act(found)
                except Conflict:
                    await asyncio.sleep(0.05)
                else:
                    return

        await change(lambda found: live.annotate(found, {"trimtab.io/applied": "{}"}))
        await change(lambda found: live.annotate(found, {"trimtab.io/change": "{}"}))
        if resource.kind != "Job":
            sizes = {"web": smaller, "proxy": smaller, "log": smaller}
            await change(lambda found, sizes=sizes: live.patch_template(found, sizes, take_ownership=True))
        if resource.kind in ROLLING:
            for phase in (OptionsPhase.ROLLING, OptionsPhase.REVERTED):
                await change(lambda found, phase=phase: live.patch_options(found, _options(found.uid, phase)))
        if resource.kind in {"Deployment", "StatefulSet", "ReplicaSet"}:
            await change(lambda found: live.scale(found, 1))
        found = cluster.call("GET", resource.path(namespace=namespace, name="web"))
        ours = {name for name in found["metadata"]["annotations"] if name.startswith("trimtab.io/")}
        options = {"trimtab.io/options"} if resource.kind in ROLLING else set()
        assert ours == {"trimtab.io/change"} | options


def _options(uid: str, phase: OptionsPhase) -> OptionsAnnotation:
    wanted = PodOptions(cache_class="burstable", power_profile="performance")
    return OptionsAnnotation(uid=uid, phase=phase, since=0, container="web", cores=1, after=wanted)


def _now() -> datetime:
    return datetime.now(UTC)


async def test_operator_account_resizes_and_evicts_pods_but_changes_nothing_else_of_them(
    operator: Client, cluster: Cluster, namespace: str
) -> None:
    machine = node(f"machine-{namespace}")
    cluster.call("POST", NODES.path(), machine)
    running = pod("web-0", namespace=namespace, node=machine["metadata"]["name"], owned=False)
    found = cluster.call("POST", PODS.path(namespace=namespace), running)
    found["status"] = pod_status(running)
    cluster.call("PUT", f"{PODS.path(namespace=namespace, name='web-0')}/status", found)
    wire = pod_projection()
    there = wire.project(await _read(cluster, namespace, wire.wire_type))
    live = KubeCluster(operator, EventRecorder(operator, component="test", instance="test", now=_now))
    container = there.containers[0]
    attack = {"spec": {"containers": [{"name": container.name, "image": "evil"}]}}
    kind = PatchType.STRATEGIC
    said = await rejection(operator.patch(PODS, "web-0", attack, type=kind, namespace=namespace))
    assert "cannot patch resource" in said
    await rejection(
        operator.patch(PODS, "web-0", attack, type=kind, namespace=namespace, subresource="resize")
    )
    now = cluster.call("GET", PODS.path(namespace=namespace, name="web-0"))
    assert now["spec"]["containers"][0]["image"] != "evil"
    there = wire.project(await _read(cluster, namespace, wire.wire_type))
    await live.resize(there, {container.name: Resources(300, None, 512 << 20, 512 << 20)})
    await live.evict(wire.project(await _read(cluster, namespace, wire.wire_type)))
    cluster.call("DELETE", NODES.path(name=machine["metadata"]["name"]))


async def _read(cluster: Cluster, namespace: str, into: Any) -> Any:
    async with Client(load_connection(kubeconfig=cluster.kubeconfig)) as admin:
        return await admin.get(PODS, "web-0", namespace=namespace, into=into)


async def test_operator_account_registers_no_webhook_for_objects_of_others(
    operator: Client, cluster: Cluster
) -> None:
    webhooks = str(DEPLOY / "operator" / "webhooks.yaml")
    cluster.kubectl("apply", "--server-side", "-f", webhooks)
    try:
        everything = {"apiGroups": ["*"], "resources": ["*"], "operations": ["*"]}
        secrets = {"apiGroups": [""], "resources": ["secrets"], "operations": ["CREATE"]}
        pods = {"apiGroups": [""], "resources": ["pods"], "operations": ["CREATE"]}
        for resource in (registration.VALIDATING, registration.MUTATING):
            found = cluster.call("GET", resource.path(name="trimtab"))
            [webhook] = found["webhooks"]
            for rule in (everything, secrets, pods):
                attack: Object = {"webhooks": [webhook | {"rules": [rule | {"apiVersions": ["*"]}]}]}
                patching = operator.patch(resource, "trimtab", attack, type=PatchType.MERGE)
                assert REFUSED in await rejection(patching)
        lifecycle = WebhookLifecycle(operator, OperatorConfig(), now=_now)
        await lifecycle.reconcile()  # its certificate, and what it registers
        assert lifecycle.readiness_error() == ""
        with_pods = OperatorConfig.model_validate({"webhook": {"pods": True}})
        said = await rejection(WebhookLifecycle(operator, with_pods, now=_now).reconcile())
        assert "delete the ValidatingAdmissionPolicyBinding trimtab-operator-pod-webhook" in said
        binding = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
        kept = cluster.call("GET", f"{binding}/trimtab-operator-pod-webhook")
        cluster.call("DELETE", f"{binding}/trimtab-operator-pod-webhook")
        async with asyncio.timeout(30):
            while await rejection(WebhookLifecycle(operator, with_pods, now=_now).reconcile()):
                await asyncio.sleep(0.2)  # until the API server has forgotten the policy
        found = cluster.call("GET", registration.MUTATING.path(name="trimtab"))
        [policies, pods_webhook] = found["webhooks"]
        attacks: list[Object] = [
            {"failurePolicy": "Fail"},
            {"namespaceSelector": {}},
            {"rules": [pods | {"apiVersions": ["v1"], "operations": ["*"]}]},
        ]
        for attack in attacks:
            body = {"webhooks": [policies, pods_webhook | attack]}
            patching = operator.patch(registration.MUTATING, "trimtab", body, type=PatchType.MERGE)
            assert REFUSED in await rejection(patching)
        kept["metadata"] = {"name": kept["metadata"]["name"]}
        cluster.call("POST", binding, kept)
    finally:
        cluster.kubectl("delete", "-f", webhooks)
        path = SECRETS.path(namespace=SYSTEM_NAMESPACE, name="trimtab-webhook")
        if cluster.has(path):
            cluster.call("DELETE", path)


async def test_operator_account_gets_no_token_of_another_account_by_a_secret(
    operator: Client, cluster: Cluster
) -> None:
    """The one Secret that it may read could be made to hold one."""
    victim = {"annotations": {"kubernetes.io/service-account.name": "default"}}
    for name, kind in (
        ("trimtab-webhook", "kubernetes.io/service-account-token"),
        ("other", "kubernetes.io/tls"),
    ):
        data = {"stringData": {"tls.crt": "", "tls.key": ""}} if kind.endswith("tls") else {}
        body = {"metadata": {"name": name, **victim}, "type": kind, **data}
        creating = operator.create(SECRETS, body, namespace=SYSTEM_NAMESPACE, dry_run=True)
        assert REFUSED in await rejection(creating)


# The agent


@pytest.fixture(scope="module")
def nodes(cluster: Cluster) -> Iterator[tuple[str, str]]:
    """Two nodes."""
    cluster.learn()
    names = ("own-node", "other-node")
    for name in names:
        cluster.call("POST", NODES.path(), node(name))
    yield names
    for name in names:
        cluster.call("DELETE", NODES.path(name=name))


@pytest.fixture
async def agent(cluster: Cluster, nodes: tuple[str, str], tmp_path: Path) -> AsyncIterator[Client]:
    """A client with the token of an agent's pod on the first node."""
    async with AsyncExitStack() as stack:
        stack.enter_context(account(cluster, "agent"))
        pods = PODS.path(namespace=SYSTEM_NAMESPACE)
        body = pod("agent", namespace=SYSTEM_NAMESPACE, node=nodes[0], owned=False)
        restricted = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        body["spec"] = {
            "serviceAccountName": "trimtab-agent",
            "nodeName": nodes[0],
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "agent", "image": "trimtab", "securityContext": restricted}],
        }
        made = cluster.call("POST", pods, body)
        stack.callback(
            cluster.kubectl, "delete", "pod", "agent", "-n", SYSTEM_NAMESPACE, "--force", "--grace-period=0"
        )
        bound = {"apiVersion": "v1", "kind": "Pod", "name": "agent", "uid": made["metadata"]["uid"]}
        request = {"spec": {"expirationSeconds": 3600, "boundObjectRef": bound}}
        token = cluster.call("POST", f"{ACCOUNTS}/trimtab-agent/token", request)["status"]["token"]
        client = await stack.enter_async_context(as_user(cluster, tmp_path, token))
        await wait_enforced(lambda: report(client, nodes[1], dry_run=True))
        yield client


async def report(client: Client, name: str, *, dry_run: bool = False) -> None:
    body = {"apiVersion": NODE_METRICS.api_version, "kind": NODE_METRICS.kind, "metadata": {"name": name}}
    await client.create(NODE_METRICS, body, dry_run=dry_run)


async def test_agent_account_reports_for_its_own_node_only(
    agent: Client, cluster: Cluster, nodes: tuple[str, str]
) -> None:
    own, other = nodes
    metric = {"apiVersion": NODE_METRICS.api_version, "kind": NODE_METRICS.kind}
    cluster.call("POST", NODE_METRICS.path(), metric | {"metadata": {"name": other}})
    try:
        await report(agent, own)
        change = [{"op": "add", "path": "/status", "value": {"updateTime": "2026-01-01T00:00:00Z"}}]
        await agent.patch(NODE_METRICS, own, change, type=PatchType.JSON, subresource="status")
        forging = agent.patch(NODE_METRICS, other, change, type=PatchType.JSON, subresource="status")
        assert REFUSED in await rejection(forging)
        assert REFUSED in await rejection(report(agent, "third-node"))
    finally:
        for name in nodes:
            if cluster.has(NODE_METRICS.path(name=name)):
                cluster.call("DELETE", NODE_METRICS.path(name=name))


async def test_agent_account_evicts_pods_of_its_own_node_only(
    agent: Client, cluster: Cluster, namespace: str, nodes: tuple[str, str]
) -> None:
    uids = {}
    for name, where in (("near", nodes[0]), ("far", nodes[1]), ("pending", None)):
        body = pod(name, namespace=namespace, node=where or "", owned=False)
        if where is None:
            body["spec"].pop("nodeName", None)
            body["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
        uids[name] = cluster.call("POST", PODS.path(namespace=namespace), body)["metadata"]["uid"]
    await asyncio.sleep(1)  # until the API server's own cache, which the policy asks, has them
    for name in ("far", "pending"):
        for labels in ({}, {"trimtab.io/evicted-by": "me"}, EVICTION_LABELS):
            evicting = agent.evict(name, namespace=namespace, uid=uids[name], labels=labels)
            assert REFUSED in await rejection(evicting)
    assert not await agent.evict("gone", namespace=namespace, labels=EVICTION_LABELS)
    near: Any = SimpleNamespace(uid=uids["near"], namespace=namespace, name="near")
    await build_api_evict(agent)(Eviction(pod=near, strategy="test", reason="test"))
    path = PODS.path(namespace=namespace, name="near")
    assert not cluster.has(path) or "deletionTimestamp" in cluster.call("GET", path)["metadata"]
    # The policies are for the agents only.
    async with Client(load_connection(kubeconfig=cluster.kubeconfig)) as admin:
        await admin.evict("far", namespace=namespace, uid=uids["far"])


async def test_agent_account_without_the_token_of_a_pod_writes_nothing(
    agent: Client, cluster: Cluster, namespace: str, nodes: tuple[str, str], tmp_path: Path
) -> None:
    """A token that was made for the account, and not for a pod of it, names no node."""
    body = {"spec": {"expirationSeconds": 3600}}
    token = cluster.call("POST", f"{ACCOUNTS}/trimtab-agent/token", body)["status"]["token"]
    uid = cluster.call(
        "POST",
        PODS.path(namespace=namespace),
        pod("near", namespace=namespace, node=nodes[0], owned=False),
    )["metadata"]["uid"]
    async with as_user(cluster, tmp_path, token) as client:
        assert REFUSED in await rejection(report(client, nodes[0]))
        await asyncio.sleep(1)
        assert REFUSED in await rejection(
            client.evict("near", namespace=namespace, uid=uid, labels=EVICTION_LABELS)
        )
