"""Run `trimtab agent` as a process that a test may stop or kill; it is root without any capability."""

import os
import sys
import urllib.request
from pathlib import Path
from urllib.error import URLError

from harness.cluster.cluster import Cluster
from harness.cluster.kubepods import Kubepods
from harness.process import Process, free_port
from trimtab.node.cgroups import QosClass

BARE = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")


class AgentProcess(Process):
    """One agent of a cluster; what it keeps is in a folder that outlives it."""

    def __init__(
        self, cluster: Cluster, folder: Path, *flags: str, node: str, kubeconfig: Path | None = None
    ) -> None:
        self.port = free_port()
        self.state = folder / "state"
        ours = [f"--unset={name}" for name in os.environ if name.startswith("TRIMTAB_")]
        trimtab = str(Path(sys.executable).with_name("trimtab"))
        command = [trimtab, "agent", "--node", node, "--state", str(self.state)]
        super().__init__(
            "agent",
            [*BARE, "env", *ours, *command, "--address", f"127.0.0.1:{self.port}", *flags],
            log=folder / "agent.log",
            environment={**cluster.environment, "KUBECONFIG": str(kubeconfig or cluster.kubeconfig)},
        )

    def page(self, path: str) -> str:
        """Return its answer; empty while it answers not at all or with an error."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                text: str = answer.read().decode()
                return text
        except (URLError, OSError):
            return ""

    def metric_value(self, name: str) -> float | None:
        """Return the value of a metric, named with its labels as in the exposition format."""
        for line in self.page("/metrics").splitlines():
            series, _, value = line.rpartition(" ")
            if series == name:
                return float(value)
        return None


def pod_on(
    cluster: Cluster,
    kubepods: Kubepods,
    *,
    namespace: str,
    node: str,
    name: str,
    containers: int = 1,
    labels: dict[str, str] | None = None,
) -> list[str]:
    """A pod of class BestEffort that the API server and the cgroups know of, though no kubelet; its containers' cgroups."""
    names = [f"c{n}" for n in range(containers)]
    made = cluster.call(
        "POST",
        f"/api/v1/namespaces/{namespace}/pods",
        {
            "metadata": {"name": name, "labels": labels or {}},
            "spec": {"nodeName": node, "containers": [{"name": each, "image": "busybox"} for each in names]},
        },
    )
    _, cgroups = kubepods.pod(QosClass.BEST_EFFORT, uid=made["metadata"]["uid"], containers=containers)
    running = {"ready": True, "image": "", "imageID": "", "restartCount": 0, "state": {"running": {}}}
    statuses = [
        running | {"name": each, "containerID": f"containerd://{cgroup.rpartition('/')[2]}"}
        for each, cgroup in zip(names, cgroups, strict=True)
    ]
    made["status"] |= {"phase": "Running", "containerStatuses": statuses}
    cluster.call("PUT", f"/api/v1/namespaces/{namespace}/pods/{name}/status", made)
    return cgroups
