"""Run workloads under real operators, on the real node or on a simulated one.

The operators have the rights of deploy/ and no other. Every workload is of `busyboxes`; what becomes of one is read
from where users read it: its pods, its annotations, the status of its policy, the cgroups of its containers.
"""

import json
import math
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from harness.cluster.account import DEPLOY, become, manifests_of
from harness.cluster.cluster import Cluster
from harness.cluster.namespaces import make_namespace
from harness.e2e.operator import OperatorProcess
from harness.faults.lying_prometheus import Liar
from harness.peers.prometheus import Prometheus, PrometheusServer
from harness.process import free_port, wait_for
from trimtab.api.quantity import Quantity
from trimtab.kube.rest.rbac import SYSTEM_NAMESPACE

Manifest = dict[str, Any]

PLURALS = {
    "Deployment": "apis/apps/v1/{}/deployments",
    "StatefulSet": "apis/apps/v1/{}/statefulsets",
    "DaemonSet": "apis/apps/v1/{}/daemonsets",
    "CronJob": "apis/batch/v1/{}/cronjobs",
    "HorizontalPodAutoscaler": "apis/autoscaling/v2/{}/horizontalpodautoscalers",
    "OptimizationPolicy": "apis/trimtab.io/v1alpha1/{}/optimizationpolicies",
    "Intent": "apis/trimtab.io/v1alpha1/{}/intents",
    "KPIProfile": "apis/trimtab.io/v1alpha1/{}/kpiprofiles",
    "Pod": "api/v1/{}/pods",
}
CGROUPS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup"))


class Estate:
    """A namespace with workloads, and replicas of the operator for it; `with` starts and ends them."""

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        *,
        namespace: str,
        prometheus: PrometheusServer | None = None,
        intents: Manifest | None = None,
        replicas: int = 2,
    ) -> None:
        self.cluster = cluster
        self.folder = folder
        self.namespace = namespace
        self.prometheus = prometheus or Prometheus(cluster, folder, every="1s")
        self.liar = Liar(self.prometheus.url)
        self._ending = ExitStack()
        settings = {
            "metricsSource": {"settings": {"url": self.liar.url, "retries": 1}},
            "store": {"url": str(folder / "trimtab.db")},
            # The kubelet of our node looks at its containers every second, so that no test waits for ten minutes.
            "learning": {"step": "3s", "historyStep": "3s", "history": "15m", "lateness": "1m"},
            "webhook": {"enabled": False},
            "leaderElection": {"leaseDuration": "5s", "renewDeadline": "4s", "retryPeriod": "500ms"},
            "disruptionLimits": {
                "node": {"maxConcurrent": 50, "maxPerMinute": 1000},
                "namespace": {"maxPerMinute": 1000},
            },
            "intents": intents or {},
        }
        self.operators = [
            OperatorProcess(
                cluster,
                folder,
                {**settings, "address": f"127.0.0.1:{free_port()}"},
                kubeconfig=operator_kubeconfig(cluster, folder),
                name=f"operator-{number}",
            )
            for number in range(replicas)
        ]

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            install(self.cluster, self.namespace)
            stack.enter_context(self.prometheus)
            stack.enter_context(self.liar)
            for operator in self.operators:
                operator.start()
                stack.callback(operator.kill)
            self._ending = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.close()
        uninstall(self.cluster, self.namespace)

    # What is wanted

    def apply(self, *manifests: Manifest) -> None:
        for manifest in manifests:
            self.cluster.call("POST", self._path(manifest["kind"]), manifest)

    def patch(self, kind: str, name: str, change: Manifest) -> None:
        where = (kind.lower(), name, f"--namespace={self.namespace}")
        self.cluster.kubectl("patch", *where, "--type=merge", f"--patch={json.dumps(change)}")

    def recommend_size(self, *, cpu: int, memory: int = 32, by: str = "size") -> str:
        """Have the strategy `file` recommend so many millicores and MiB; return the file that it reads."""
        file = self.folder / f"{by}.json"
        fresh = file.with_suffix(".new")
        fresh.write_text(json.dumps({"cpu": cpu / 1000, "memory": memory << 20}))
        fresh.replace(file)
        return str(file)

    def run_now(self, cron_job: str) -> None:
        where = f"--namespace={self.namespace}"
        self.cluster.kubectl("create", "job", f"{cron_job}-now", f"--from=cronjob/{cron_job}", where)

    # What is

    def get(self, kind: str, name: str) -> Manifest:
        return self.cluster.call("GET", f"{self._path(kind)}/{name}")

    def pods(self, app: str) -> list[Manifest]:
        """The pods of an app that run, the oldest first."""
        found = self.cluster.call("GET", f"{self._path('Pod')}?labelSelector=app={app}")["items"]
        running = [pod for pod in found if pod["status"]["phase"] == "Running" and not _leaves(pod)]
        return sorted(running, key=lambda pod: pod["metadata"]["creationTimestamp"])

    def sizes(self, app: str) -> list[int]:
        """The millicores that each pod of an app asks for."""
        return [millicores(pod["spec"]["containers"][0]) for pod in self.pods(app)]

    def mark(self, kind: str, name: str, which: str) -> Manifest:
        """Return an annotation of the operator on a workload; empty if there is none."""
        annotations = self.get(kind, name)["metadata"].get("annotations", {})
        text = annotations.get(f"trimtab.io/{which}")
        return json.loads(text)["mark"] if text else {}

    def status(self, policy: str, workload: str) -> Manifest:
        """Return the entry of a workload in the status of a policy; empty if there is none."""
        listed = self.get("OptimizationPolicy", policy).get("status", {}).get("workloads", [])
        return next((entry for entry in listed if entry["name"] == workload), {})

    def condition(self, policy: str, which: str) -> str:
        found = self.get("OptimizationPolicy", policy).get("status", {}).get("conditions", [])
        return next((each["status"] for each in found if each["type"] == which), "")

    @property
    def leader(self) -> OperatorProcess | None:
        """The operator that holds the lease, if it lives."""
        with suppress(OSError):
            lease = self.cluster.call(
                "GET", f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/leases/trimtab-operator"
            )
            holder = lease["spec"].get("holderIdentity")
            for operator in self.operators:
                terms = operator.log_lines("lease.acquired")
                if operator.alive and terms and terms[-1]["identity"] == holder:
                    return operator
        return None

    def _path(self, kind: str) -> str:
        return "/" + PLURALS[kind].format(f"namespaces/{self.namespace}")


# Setting up


def operator_kubeconfig(cluster: Cluster, folder: Path) -> Path:
    """The kubeconfig of the operator's account, with exactly its rights."""
    kubeconfig = yaml.safe_load(cluster.kubeconfig.read_text())
    kubeconfig["users"][0]["user"] |= become("operator")
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(kubeconfig))
    return path


def install(cluster: Cluster, namespace: str) -> None:
    """Our kinds and the operator's account, and a namespace in which pods can be made."""
    kubectl = cluster.kubectl
    kubectl("delete", "--ignore-not-found", "namespace", SYSTEM_NAMESPACE)  # another test's, on its way out
    cluster.learn()
    for manifest in (str(DEPLOY / "operator" / "namespace.yaml"), *manifests_of("operator")):
        kubectl("apply", "--server-side", "-f", manifest)
    make_namespace(cluster, namespace)


def uninstall(cluster: Cluster, namespace: str) -> None:
    """Delete the account too, since Helm adopts no foreign account, but keep the kinds."""
    for manifest in manifests_of("operator"):
        cluster.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", manifest)
    for name in (namespace, SYSTEM_NAMESPACE):
        cluster.call("DELETE", f"/api/v1/namespaces/{name}")


def millicores(container: Manifest) -> int:
    return Quantity.parse(container["resources"]["requests"]["cpu"]).millicores


def memory_limit(pod: Manifest) -> int:
    return Quantity.parse(pod["spec"]["containers"][0]["resources"]["limits"]["memory"]).bytes


def container_status(pod: Manifest) -> Manifest:
    status: Manifest = pod["status"]["containerStatuses"][0]
    return status


def kernel(pod: Manifest, *names: str) -> int:
    """Return the kernel's value for a pod's container, from the first of these files that exists."""
    container = container_status(pod)["containerID"].removeprefix("containerd://")
    for top in CGROUPS:
        for folder in top.glob(f"kubepods/*/*/{container}"):
            for name in names:
                if (folder / name).exists():
                    return int((folder / name).read_text().split()[0])
    raise FileNotFoundError(f"no {' or '.join(names)} of {container}, which may be starting")


def shares(cpu: int) -> set[int]:
    """Return the values that a kernel may hold for so many millicores, for both versions of cgroups and runc's two conversions."""
    first = cpu * 1024 // 1000
    power = math.log2(first)
    return {
        first,
        1 + (first - 2) * 9999 // 262142,
        math.ceil(10 ** ((power**2 + 125 * power) / 612 - 7 / 34)),
    }


def eventually(true: Callable[[], bool], *, what: str, timeout: float = 120.0) -> None:
    """Look until it is so; an API server that is away at the moment is no answer."""

    def holds() -> bool:
        with suppress(OSError):
            return true()
        return False

    wait_for(holds, what=what, timeout=timeout)


def _leaves(pod: Manifest) -> bool:
    return "deletionTimestamp" in pod["metadata"]
