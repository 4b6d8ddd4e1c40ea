"""The node informer: one view of the node from its three sources."""

import asyncio
import json
import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from trimtab.api import NodeQoSPolicy
from trimtab.api.nodeqospolicy import TierNamespacesSpec
from trimtab.kube.auth import Connection
from trimtab.kube.auth.credentials import LocalCredentialProvider
from trimtab.kube.kinds.custom import QosPolicy, select_qos_policy
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.retry import RetryPolicy
from trimtab.node.cgroups import CgroupDriver, CgroupLayout, Hierarchy, QosClass
from trimtab.node.informer import NodeInformer
from trimtab.node.informer.inotify import InotifyWatch
from trimtab.node.informer.merge import merge_known_pods
from trimtab.node.informer.pods import KnownPod, PodProjector
from trimtab.node.informer.topology import read_topology
from trimtab.node.model import Tier, resolve_tier

UID = "0a1b2c3d-0000-1111-2222-333344445555"
OTHER = "ffffffff-0000-1111-2222-333344445555"
ID = "0123456789abcdef" * 4
LAYOUT = CgroupLayout(CgroupDriver.CGROUPFS)


def kubelet_pod(uid: str = UID, *, labels: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    status = {"name": "main", "containerID": f"containerd://{ID}", "state": {"running": {}}}
    return {
        "metadata": {"name": "web", "namespace": "shop", "uid": uid, "labels": labels or {}} | more,
        "spec": {
            "priority": 7,
            "containers": [
                {"name": "main", "resources": {"requests": {"cpu": "250m"}, "limits": {"memory": "1Gi"}}},
                {"name": "waiting"},
            ],
        },
        "status": {
            "qosClass": "Burstable",
            "containerStatuses": [status, {"name": "waiting", "state": {"waiting": {}}}],
        },
    }


def answer(*pods: dict[str, Any]) -> bytes:
    return json.dumps({"kind": "PodList", "items": pods}).encode()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "cgroup.controllers").touch()
    for qos in QosClass:
        (tmp_path / LAYOUT.qos_path(qos)).mkdir(exist_ok=True)
    return tmp_path


@pytest.fixture
def states(tree: Path) -> Iterator[NodeInformer]:
    made = NodeInformer("node", hierarchy=Hierarchy.detect(tree))
    yield made
    made.close()


def pod_folder(tree: Path, uid: str = UID, qos: QosClass = QosClass.BURSTABLE) -> Path:
    folder = tree / LAYOUT.pod_path(uid, qos)
    (folder / ID).mkdir(parents=True)
    return folder


def test_node_informer_merges_kubelet_pods_with_cgroup_paths(states: NodeInformer, tree: Path) -> None:
    pod_folder(tree)
    states.update_from_kubelet(answer(kubelet_pod(labels={"trimtab.io/qos": "BE"})), 100.0)
    [pod] = states.view(100.0).pods
    assert (pod.namespace, pod.name, pod.uid, pod.priority) == ("shop", "web", UID, 7)
    assert pod.tier is Tier.BE
    assert pod.cgroup == LAYOUT.pod_path(UID, QosClass.BURSTABLE)
    [container] = pod.containers
    assert (container.name, container.id) == ("main", ID)
    assert container.cgroup == f"{pod.cgroup}/{ID}"
    assert (container.resources.cpu_request, container.resources.memory_limit) == (250, 1 << 30)
    assert pod.resources.cpu_request == 250


@pytest.mark.parametrize("has_inner", [True, False])
def test_node_informer_finds_the_inner_cgroup_of_crun_containers(tmp_path: Path, *, has_inner: bool) -> None:
    layout = CgroupLayout(CgroupDriver.SYSTEMD)
    scope = layout.container_path(layout.pod_path(UID, QosClass.BURSTABLE), f"cri-o://{ID}")
    (tmp_path / "cgroup.controllers").touch()
    (tmp_path / scope / "container" if has_inner else tmp_path / scope).mkdir(parents=True)
    states, pod = NodeInformer("node", hierarchy=Hierarchy.detect(tmp_path)), kubelet_pod()
    pod["status"]["containerStatuses"][0]["containerID"] = f"cri-o://{ID}"
    states.update_from_kubelet(answer(pod), 100.0)
    [container] = states.view(100.0).pods[0].containers
    assert container.cgroup == scope
    assert container.inner_cgroup == (f"{scope}/container" if has_inner else None)
    states.close()


def test_node_informer_shows_a_pod_by_cgroup_before_the_kubelet_names_it(
    states: NodeInformer, tree: Path
) -> None:
    assert states.view(100.0).pods == ()
    pod_folder(tree, qos=QosClass.BEST_EFFORT)
    [pod] = states.view(100.1).pods
    assert (pod.name, pod.tier, pod.uid) == ("", Tier.BE, UID)
    assert [container.id for container in pod.containers] == [ID]
    states.update_from_kubelet(answer(kubelet_pod()), 100.2)
    assert states.view(100.3).pods[0].name == "web"


def test_node_informer_removes_a_pod_whose_cgroup_is_gone(states: NodeInformer, tree: Path) -> None:
    folder = pod_folder(tree)
    states.update_from_kubelet(answer(kubelet_pod(), kubelet_pod(OTHER)), 100.0)
    assert len(states.view(100.0).pods) == 1
    (folder / ID).rmdir()
    folder.rmdir()
    assert states.view(100.1).pods == ()


def test_node_informer_returns_the_same_view_when_nothing_changed(states: NodeInformer, tree: Path) -> None:
    pod_folder(tree)
    states.update_from_kubelet(answer(kubelet_pod()), 100.0)
    first = states.view(100.0)
    states.update_from_kubelet(answer(kubelet_pod()), 110.0)
    assert states.view(120.0) is first


@pytest.mark.parametrize(
    ("status", "body", "troubled"),
    [
        ("403 Forbidden", b"No", set[str]()),
        ("500 Internal Server Error", b"No", {"kubelet"}),
        ("200 OK", b'{"items": [{"metadata": {"name": "\xff"}}]}', {"kubelet"}),
    ],
)
async def test_node_informer_is_ready_although_the_kubelet_rejects_it(
    states: NodeInformer, status: str, body: bytes, troubled: set[str]
) -> None:
    """As all before Kubernetes 1.33 with the rights of our manifest; the API server's word has to do then."""

    async def kubelet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        writer.close()

    async with await asyncio.start_server(kubelet, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        connection = Connection(
            server=url, context="", namespace="", credentials=LocalCredentialProvider(), trust=None
        )
        async with Client(connection, retry=RetryPolicy(attempts=1)) as client:
            with capture_logs() as logs:
                following = asyncio.create_task(states.poll_kubelet(client, clock=lambda: 100.0))
                while not logs:
                    await asyncio.sleep(0.01)
            following.cancel()
            await asyncio.wait([following])
    assert [each["event"] for each in logs] == ["kubelet.unreachable"]
    assert states.errors_by_source().keys() == troubled


def _deaf() -> InotifyWatch:
    """One that got no inotify: a process without a free descriptor gets none either."""
    free, limits = os.dup(0), resource.getrlimit(resource.RLIMIT_NOFILE)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
    try:
        return InotifyWatch()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


async def test_node_informer_polls_when_inotify_is_exhausted(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root has 128 inotify instances on most nodes, and log collectors may use all of them."""
    monkeypatch.setattr("trimtab.node.informer.informer.InotifyWatch", _deaf)
    with capture_logs() as logs:
        states = NodeInformer("node", hierarchy=Hierarchy.detect(tree))
    assert [each["event"] for each in logs] == ["cgroups.watch_failed"]
    states.watch_cgroups()
    assert states.view(100.0).pods == ()
    pod_folder(tree)
    assert len(states.view(110.0).pods) == 1
    states.close()


def test_node_informer_uses_pod_level_resources(states: NodeInformer, tree: Path) -> None:
    pod_folder(tree)
    pod = kubelet_pod()
    pod["spec"]["resources"] = {"limits": {"cpu": "2"}}
    states.update_from_kubelet(answer(pod), 100.0)
    [seen] = states.view(100.0).pods
    assert (seen.resources.cpu_limit, seen.resources.cpu_request) == (2000, 250)


def test_node_informer_reports_a_missing_kubepods_cgroup(states: NodeInformer, tree: Path) -> None:
    """Else one whose kubelet has a cgroup root of its own would look as if it ran nothing."""
    states.view(100.0)
    assert states.errors_by_source() == {}
    shutil.rmtree(tree / "kubepods")
    assert states.errors_by_source() == {
        "cgroups": "the node has no cgroup kubepods; check --cgroups and --cgroup-parent"
    }


def test_node_informer_stops_using_stale_kubelet_data(states: NodeInformer, tree: Path) -> None:
    pod_folder(tree)
    states.update_from_kubelet(answer(kubelet_pod()), 100.0)
    assert states.view(120.0).pods[0].name == "web"
    assert states.view(140.0).pods[0].name == ""


def test_node_informer_reports_a_pod_as_terminating_by_either_source() -> None:
    """A kubelet is asked every ten seconds, and others would be evicted for the same memory meanwhile."""
    before = PodProjector().parse_list(answer(kubelet_pod(), kubelet_pod(OTHER)))
    after = PodProjector().parse_list(answer(kubelet_pod(deletionTimestamp="2026-11-16T12:00:00Z")))
    for api, kubelet in ((after, before), (before, after)):
        known = merge_known_pods(api, {pod.cgroup_uid: pod for pod in kubelet})
        assert {uid: pod.deleting for uid, pod in known.items()} == {UID: True, OTHER: False}


STATIC_UID = "0123456789abcdef0123456789abcdef"


def mirror_annotations(uid: str) -> dict[str, str]:
    return {f"kubernetes.io/config.{name}": uid for name in ("hash", "mirror")}


def project_api_pods(*pods: dict[str, Any]) -> list[KnownPod]:
    projection = PodProjector().projection
    return [
        projection.project(msgspec.json.decode(json.dumps(pod), type=projection.wire_type)) for pod in pods
    ]


NODE_OWNER = {"kind": "Node", "name": "node", "uid": "n", "controller": True}


def test_node_informer_names_static_pods_of_the_kubelet(states: NodeInformer, tree: Path) -> None:
    pod_folder(tree, uid=STATIC_UID)
    source = {"kubernetes.io/config.source": "file"}
    states.update_from_kubelet(answer(kubelet_pod(STATIC_UID, annotations=source)), 100.0)
    [pod] = states.view(100.0).pods
    assert (pod.name, pod.is_evictable) == ("web", False)


def test_node_informer_matches_mirror_pods_by_the_static_pods_uid() -> None:
    mirror = kubelet_pod(OTHER, annotations=mirror_annotations(STATIC_UID), ownerReferences=[NODE_OWNER])
    [pod] = merge_known_pods(project_api_pods(mirror), {}).values()
    assert (pod.cgroup_uid, pod.is_node_bound) == (STATIC_UID, True)


@pytest.mark.parametrize("owners", [[], [NODE_OWNER]])
@pytest.mark.parametrize("names", [("hash",), ("hash", "mirror"), ("hash", "source"), ("mirror",)])
def test_node_informer_rejects_annotations_that_claim_the_cgroup_of_another_pod(
    names: tuple[str, ...], owners: list[dict[str, Any]]
) -> None:
    """A tenant's best-effort pod could else have a victim's containers throttled, or itself never evicted."""
    forged_annotations = {f"kubernetes.io/config.{name}": UID for name in names}
    tenant, victim = (
        kubelet_pod(OTHER, annotations=forged_annotations, ownerReferences=owners),
        kubelet_pod(UID),
    )
    tenant["metadata"] |= {"name": "tenant"}
    for pods in ((tenant, victim), (victim, tenant)):
        assert merge_known_pods(project_api_pods(*pods), {})[UID].name == "web"
    # The kubelet writes the source of a pod that came from the API server itself.
    tenant["metadata"]["annotations"]["kubernetes.io/config.source"] = "api"
    [pod] = PodProjector().parse_list(answer(tenant))
    assert (pod.cgroup_uid, pod.is_node_bound) == (OTHER, False)


def test_node_informer_rejects_a_static_uid_that_two_pods_claim() -> None:
    pods = [
        kubelet_pod(uid, annotations=mirror_annotations(STATIC_UID), ownerReferences=[NODE_OWNER])
        for uid in (UID, OTHER)
    ]
    assert STATIC_UID not in merge_known_pods(project_api_pods(*pods), {})


@pytest.mark.parametrize(
    "container_id",
    ["containerd://../../victim", "containerd://..", "x/../y", "a://b/c", "a://b\n", f"a://{300 * 'b'}"],
)
def test_node_informer_ignores_container_ids_that_leave_the_pods_cgroup(container_id: str) -> None:
    pod = kubelet_pod()
    pod["status"]["containerStatuses"][0]["containerID"] = container_id
    assert PodProjector().parse_list(answer(pod))[0].containers == ()


def test_node_informer_reports_daemonset_pods_as_not_evictable(states: NodeInformer, tree: Path) -> None:
    pod_folder(tree)
    for kind, can_go in (("DaemonSet", False), ("ReplicaSet", True)):
        owner = {"kind": kind, "name": "logs", "uid": "d", "controller": True}
        states.update_from_kubelet(answer(kubelet_pod(ownerReferences=[owner])), 100.0)
        assert states.view(100.0).pods[0].is_evictable is can_go


def test_node_informer_reports_both_sizes_during_a_resize(states: NodeInformer, tree: Path) -> None:
    pod_folder(tree)
    pod = kubelet_pod()
    pod["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "500m"}}
    pod["status"]["containerStatuses"][0]["resources"] = {"limits": {"cpu": "2"}}
    states.update_from_kubelet(answer(pod), 100.0)
    [container] = states.view(100.0).pods[0].containers
    assert (container.resources.cpu_limit, container.spec_resources.cpu_limit) == (2000, 500)


def test_node_informer_follows_cpu_and_memory_hotplug(tree: Path) -> None:
    """As where hyper-threads are switched off, huge pages set aside, or a virtual machine gets more."""
    online, meminfo = tree / "sys/devices/system/cpu/online", tree / "proc/meminfo"
    online.parent.mkdir(parents=True)
    meminfo.parent.mkdir()

    def becomes(cpus: str, huge: int) -> None:
        online.write_text(f"{cpus}\n")
        meminfo.write_text(f"MemTotal: 1024 kB\nMemFree: 9 kB\nHugetlb: {huge} kB\n")

    becomes("0-3", huge=0)
    states = NodeInformer("node", hierarchy=Hierarchy.detect(tree), proc=tree / "proc", sys=tree / "sys")
    seen = []
    for now, cpus, huge in ((0.0, "0-3", 0), (10.0, "0,2", 0), (20.0, "0-3", 256)):
        becomes(cpus, huge)
        view = states.view(now)
        seen.append(([cpu.id for cpu in view.cpus], view.memory))
    states.close()
    assert seen == [([0, 1, 2, 3], 1 << 20), ([0, 2], 1 << 20), ([0, 1, 2, 3], 768 << 10)]


def test_inotify_watch_uses_one_descriptor_for_any_number_of_pods(states: NodeInformer, tree: Path) -> None:
    states.view(0.0)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - counted, not walked
    for number in range(50):
        folder = pod_folder(tree, uid=f"{number:08x}-0000-1111-2222-333344445555")
        assert len(states.view(1.0).pods) == 1
        (folder / ID).rmdir()
        folder.rmdir()
        assert states.view(1.0).pods == ()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


@pytest.mark.parametrize(
    ("label", "qos", "tier"),
    [
        (None, QosClass.BEST_EFFORT, Tier.BE),
        (None, QosClass.BURSTABLE, Tier.LS),
        (None, QosClass.GUARANTEED, Tier.LS),
        ("LSR", QosClass.GUARANTEED, Tier.LSR),
        ("be", QosClass.BURSTABLE, Tier.BE),
        ("nonsense", QosClass.BURSTABLE, Tier.LS),
    ],
)
def test_pod_tier_is_the_label_or_the_qos_class(label: str | None, qos: QosClass, tier: Tier) -> None:
    assert resolve_tier(label, qos, "shop", TierNamespacesSpec()) is tier


def policy(name: str, **spec: Any) -> QosPolicy:
    read = NodeQoSPolicy.read({"kind": "NodeQoSPolicy", "spec": spec})
    return QosPolicy(name=name, uid=name, version=1, spec=read.spec)


def test_node_policy_with_highest_weight_wins_then_first_name() -> None:
    gpu = policy("gpu", weight=900, nodeSelector={"matchLabels": {"gpu": "yes"}})
    b, a = policy("b", weight=200), policy("a", weight=200)
    light = policy("light", weight=1)
    assert select_qos_policy({}, [light, b, gpu, a]) is a
    assert select_qos_policy({"gpu": "yes"}, [light, b, gpu, a]) is gpu
    assert select_qos_policy({}, [gpu]) is None
    assert select_qos_policy({}, [QosPolicy(name="bad", uid="x", version=1, spec=None)]) is None


def test_topology_reads_threads_sockets_numa_nodes_and_caches(tmp_path: Path) -> None:
    folder = tmp_path / "devices" / "system"
    for cpu in range(8):
        core, socket = cpu % 4, (cpu % 4) // 2
        here = folder / "cpu" / f"cpu{cpu}"
        for path, text in {
            "topology/thread_siblings_list": f"{core},{core + 4}",
            "topology/physical_package_id": str(socket),
            "cache/index0/level": "1",
            "cache/index0/shared_cpu_list": f"{core},{core + 4}",
            "cache/index3/level": "3",
            "cache/index3/shared_cpu_list": "0-1,4-5" if socket == 0 else "2-3,6-7",
        }.items():
            (here / path).parent.mkdir(parents=True, exist_ok=True)
            (here / path).write_text(text + "\n")
    (folder / "cpu" / "online").write_text("0-6\n")
    (folder / "cpu" / "isolated").write_text("2,6\n")
    for numa, listed in enumerate(["0-1,4-5", "2-3,6-7"]):
        (folder / "node" / f"node{numa}").mkdir(parents=True)
        (folder / "node" / f"node{numa}" / "cpulist").write_text(listed)
    cpus = read_topology(tmp_path)
    assert [cpu.id for cpu in cpus] == [0, 1, 2, 3, 4, 5, 6]
    assert [cpu.id for cpu in cpus if cpu.isolated] == [2, 6]
    assert (cpus[4].core, cpus[4].socket, cpus[4].numa, cpus[4].cache) == (0, 0, 0, 0)
    assert (cpus[6].core, cpus[6].socket, cpus[6].numa, cpus[6].cache) == (2, 1, 1, 2)


def test_topology_reads_this_machine() -> None:
    assert {cpu.id for cpu in read_topology(Path("/sys"))} >= os.sched_getaffinity(0)
