"""Twenty workloads of eight kinds on a real API server, and a real Prometheus with their usage history.

No pod runs: the node exists by name only. Usage is recorded as a kubelet would report it, under the pod names that
the controllers chose.
"""

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

from harness.builders.objects import node
from harness.cluster.cluster import Cluster
from harness.process import wait_for
from usage.recording import CPU, MEMORY, T0, MetricRecording, container_labels

MIB = 2.0**20
SCRAPE = 300.0
DAYS = 1.25
NOW_IS = 16.5 * 3600
NODE = "survey-node"
GROUP = "survey.example"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PATHS = {
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
    "DaemonSet": "/apis/apps/v1/namespaces/{}/daemonsets",
    "ReplicaSet": "/apis/apps/v1/namespaces/{}/replicasets",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "CronJob": "/apis/batch/v1/namespaces/{}/cronjobs",
    "Pod": "/api/v1/namespaces/{}/pods",
    "Fleet": f"/apis/{GROUP}/v1/namespaces/{{}}/fleets",
}

Object = dict[str, Any]


@dataclass(frozen=True)
class SampleWorkload:
    """A workload with one container, its size and its peak usage."""

    kind: str
    name: str
    replicas: int = 1
    cpu: str | None = "500m"
    memory: str | None = "512Mi"
    cpu_limit: str | None = None
    memory_limit: str | None = None
    cores: float = 0.1
    mib: float = 100.0
    throttled: float = 0.0

    @property
    def manifest(self) -> Object:
        labels = {"app": self.name, "tier": "front" if self.name.startswith("web") else "back"}
        pod: Object = {"metadata": {"labels": labels}, "spec": self._pod}
        own: Object = {"selector": {"matchLabels": {"app": self.name}}, "template": pod}
        match self.kind:
            case "Pod":
                own = self._pod
            case "Job":
                own = {"template": pod}
            case "CronJob":
                own = {"schedule": "0 3 * * *", "jobTemplate": {"spec": {"template": pod}}}
            case "StatefulSet":
                own |= {"replicas": self.replicas, "podManagementPolicy": "Parallel"}
            case "Deployment" | "ReplicaSet" | "Fleet":
                own["replicas"] = self.replicas
        group = {"Pod": "v1", "Job": "batch/v1", "CronJob": "batch/v1", "Fleet": f"{GROUP}/v1"}
        return {
            "apiVersion": group.get(self.kind, "apps/v1"),
            "kind": self.kind,
            "metadata": {"name": self.name, "labels": labels},
            "spec": own,
        }

    @property
    def _pod(self) -> Object:
        asked = {"cpu": self.cpu, "memory": self.memory}
        capped = {"cpu": self.cpu_limit, "memory": self.memory_limit}
        sizes = {
            name: {resource: amount for resource, amount in amounts.items() if amount}
            for name, amounts in (("requests", asked), ("limits", capped))
        }
        container = {"name": "app", "image": "registry.example/app:1", "resources": sizes}
        ends: Object = {"restartPolicy": "Never"} if self.kind in {"Job", "CronJob"} else {}
        # The node has no kubelet and is tainted as unreachable after a while.
        stays: Object = {"tolerations": [{"operator": "Exists"}]} if self.kind == "DaemonSet" else {}
        return {"containers": [container], "nodeName": NODE if self.kind == "Pod" else None, **ends, **stays}


WORKLOADS = (
    SampleWorkload("Deployment", "web", 3, cpu="2", memory="2Gi", memory_limit="2Gi", cores=0.3, mib=300),
    SampleWorkload("Deployment", "web-api", 4, cpu="1", memory="1Gi", cores=0.2, mib=400),
    SampleWorkload(
        "Deployment", "starved", 2, cpu="100m", memory="256Mi", memory_limit="256Mi", cores=0.2, mib=250
    ),
    SampleWorkload(
        "Deployment", "throttled", 2, cpu="200m", cpu_limit="200m", cores=0.2, mib=90, throttled=0.4
    ),
    SampleWorkload("Deployment", "naked", 2, cpu=None, memory=None, cores=0.15, mib=120),
    SampleWorkload("Deployment", "right", cpu="110m", memory="120Mi", cores=0.1, mib=100),
    SampleWorkload("Deployment", "scaled", 2, cpu="1", memory="1Gi", cores=0.6, mib=200),
    SampleWorkload("Deployment", "idle", cpu="4", memory="8Gi", cores=0.01, mib=40),
    SampleWorkload("Deployment", "asleep", 0),
    SampleWorkload("Deployment", "unseen"),
    SampleWorkload("StatefulSet", "db", 2, cpu="2", memory="4Gi", memory_limit="4Gi", cores=0.8, mib=3000),
    SampleWorkload("StatefulSet", "cache", 1, cpu="500m", memory="1Gi", cores=0.05, mib=700),
    SampleWorkload("DaemonSet", "logs", cpu="200m", memory="256Mi", cores=0.03, mib=60),
    SampleWorkload("DaemonSet", "mesh", cpu="100m", memory="128Mi", cores=0.05, mib=90),
    SampleWorkload("ReplicaSet", "legacy", 2, cpu="500m", memory="512Mi", cores=0.1, mib=100),
    SampleWorkload("Job", "import", cpu="1", memory="1Gi", cores=0.5, mib=400),
    SampleWorkload("Job", "reindex", cpu="2", memory="2Gi", cores=0.4, mib=300),
    SampleWorkload("CronJob", "nightly", cpu="1", memory="1Gi", cores=0.5, mib=400),
    SampleWorkload("Pod", "debug", cores=0.01, mib=20),
    SampleWorkload("Fleet", "ranks", 2, cpu="500m", memory="512Mi", cores=0.1, mib=100),
)

FLEET: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"fleets.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": "fleets", "singular": "fleet", "kind": "Fleet"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                },
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
                },
            }
        ],
    },
}


RunCommand = Callable[..., tuple[int, str, str]]
"""Runs a command and returns exit code, stdout and stderr."""


@dataclass(frozen=True)
class ScannedCluster:
    """The cluster, the namespace of the sample workloads and a Prometheus with their history."""

    cluster: Cluster
    namespace: str
    prometheus: str

    @property
    def options(self) -> list[str]:
        """Return the command-line options that select cluster and Prometheus."""
        return ["--kubeconfig", str(self.cluster.kubeconfig), "--prometheus", self.prometheus]


class SampleWorkloads:
    """Creates the workloads in a namespace of their own; `with` deletes them at the end."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace

    def __enter__(self) -> Self:
        self._make()
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.call("DELETE", f"/api/v1/namespaces/{self.namespace}")
        self.cluster.call("DELETE", f"/api/v1/nodes/{NODE}")
        kind = f"{CRDS}/{FLEET['metadata']['name']}"
        self.cluster.call("DELETE", kind)
        # Creating the same CRD again while it is being deleted would lose it.
        wait_for(lambda: not self.cluster.has(kind), what="the kind to be gone")

    def _make(self) -> None:
        """Create all workloads and wait for the pods of their controllers."""
        self.cluster.call("POST", "/api/v1/nodes", node(NODE))
        self.cluster.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(FLEET))
        self.cluster.kubectl("wait", "--for=condition=Established", f"crd/fleets.{GROUP}")
        for workload in WORKLOADS:
            self.cluster.call("POST", PATHS[workload.kind].format(self.namespace), workload.manifest)
        self.cluster.kubectl("create", "job", "nightly-1", "--from=cronjob/nightly", "-n", self.namespace)
        for number in range(2):
            self._make_pod_of_fleet(number)
        wanted = {workload.name: workload.replicas for workload in WORKLOADS}
        wait_for(
            lambda: {name: len(self.pods(name)) for name in wanted} == wanted,
            what="pods of every workload",
            timeout=120,
        )
        wait_for(
            lambda: all(found["status"]["desiredNumberScheduled"] for found in self._daemon_sets()),
            what="the statuses of the DaemonSets",
            timeout=120,
        )

    def _daemon_sets(self) -> list[Object]:
        found: list[Object] = self.cluster.call("GET", PATHS["DaemonSet"].format(self.namespace))["items"]
        return found

    def pods(self, app: str) -> list[str]:
        found = self.cluster.call("GET", f"{PATHS['Pod'].format(self.namespace)}?labelSelector=app={app}")
        return sorted(pod["metadata"]["name"] for pod in found["items"])

    def recording(self) -> str:
        """Return the history up to an hour from now, so that it does not become stale during the tests."""
        recording, now = MetricRecording(), time.time() + 3600
        for workload in WORKLOADS:
            for pod in self.pods(workload.name) if workload.name != "unseen" else ():
                _record(recording, workload, container_labels(pod, namespace=self.namespace), now=now)
        return recording.text

    def _make_pod_of_fleet(self, number: int) -> None:
        """Create a pod of the custom kind, which has no controller."""
        (workload,) = (workload for workload in WORKLOADS if workload.kind == "Fleet")
        path = PATHS["Fleet"].format(self.namespace)
        uid = self.cluster.call("GET", f"{path}/{workload.name}")["metadata"]["uid"]
        owner = {
            "apiVersion": f"{GROUP}/v1",
            "kind": "Fleet",
            "name": workload.name,
            "uid": uid,
            "controller": True,
        }
        template = workload.manifest["spec"]["template"]
        metadata = {"name": f"{workload.name}-{number}", "ownerReferences": [owner], **template["metadata"]}
        body = {"metadata": metadata, "spec": {**template["spec"], "nodeName": NODE}}
        self.cluster.call("POST", PATHS["Pod"].format(self.namespace), body)


def _record(
    recording: MetricRecording, workload: SampleWorkload, labels: dict[str, str], *, now: float
) -> None:
    times = list(_times(now, workload))
    day = [0.5 - 0.5 * math.cos(2 * math.pi * _hour(t, now) / 24) for t in times]
    used, total = [], 0.0
    for share in day:
        total += workload.cores * (0.5 + 0.5 * share) * SCRAPE
        used.append(total)
    recording.add(CPU, labels, zip(_since(times), used, strict=True))
    memory = [workload.mib * MIB * (0.9 + 0.1 * share) for share in day]
    recording.add(MEMORY, labels, zip(_since(times), memory, strict=True))
    periods: Callable[[float], float] = lambda t: 10 * (t - times[0])  # noqa: E731 - ten a second
    if workload.cpu_limit:
        for metric, share in (("periods", 1.0), ("throttled_periods", workload.throttled)):
            values = [share * periods(t) for t in times]
            recording.add(
                f"container_cpu_cfs_{metric}_total", labels, zip(_since(times), values, strict=True)
            )


def _times(now: float, workload: SampleWorkload) -> Iterator[float]:
    first = now - DAYS * 86400
    for number in range(int(DAYS * 86400 / SCRAPE) + 1):
        t = first + number * SCRAPE
        if workload.kind != "CronJob" or _hour(t, now) < 2:
            yield t


def _hour(t: float, now: float) -> float:
    """Return the hour of the simulated day, in which now is always the same time."""
    return (t - now + NOW_IS) % 86400 / 3600


def _since(times: list[float]) -> list[float]:
    return [t - T0 for t in times]
