"""Run a real service under load on the real node with its latency in a real Prometheus.

The service is ours (harness/go/service): each request costs the same CPU, one at a time. The generator of load runs
beside the node and spreads over the pods that are ready, as a Service would.
"""

import json
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from harness import build
from harness.cluster import images
from harness.cluster.cluster import Cluster
from harness.e2e.e2e_env import install, millicores, operator_kubeconfig, uninstall
from harness.e2e.operator import OperatorProcess
from harness.peers.prometheus import PrometheusServer, scrape_kubelet
from harness.process import Process, free_port

Manifest = dict[str, Any]

APP = "shop"
PORT = 8080
COST = "8ms"
_PODS = 'namespace="$namespace",pod=~"$pods"'
P95 = f"histogram_quantile(0.95, sum(rate(request_seconds_bucket{{{_PODS}}}[8s])) by (le))"
LOAD = f"sum(rate(request_seconds_count{{{_PODS}}}[8s]))"


def deployment(*, cpu: str, replicas: int = 1) -> Manifest:
    size = {"cpu": cpu, "memory": "64Mi"}
    container = {
        "name": "main",
        "image": images.SERVICE,
        "imagePullPolicy": "Never",
        "args": ["serve", f":{PORT}", COST],
        "env": [{"name": "GOMAXPROCS", "value": "1"}],
        "resources": {"requests": size, "limits": size},
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1, "timeoutSeconds": 5},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": APP},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": APP}},
            "template": {
                "metadata": {"labels": {"app": APP}},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
            },
        },
    }


def profile(name: str = "p95") -> Manifest:
    return {
        "apiVersion": "trimtab.io/v1alpha1",
        "kind": "KPIProfile",
        "metadata": {"name": name},
        "spec": {
            "type": "latency",
            "query": P95,
            "description": "The 95th percentile of response times, in seconds.",
            "props": {"load": LOAD},
        },
    }


def intent(*, seconds: float, name: str = APP) -> Manifest:
    objective = {"name": "p95", "value": seconds, "measuredBy": "p95", "tolerance": 0.1}
    return {
        "apiVersion": "trimtab.io/v1alpha1",
        "kind": "Intent",
        "metadata": {"name": name},
        "spec": {"targetRef": {"name": APP}, "priority": 0.5, "objectives": [objective]},
    }


class Showcase:
    """A namespace with the service, its load and its Prometheus, and an operator where asked for; `with` starts it."""

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        *,
        namespace: str,
        intents: Mapping[str, Any] | None = None,
    ) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self._targets = folder / "targets"
        self._rate = 0.0
        self._ended = threading.Event()
        self._ending = ExitStack()
        self._scraped = folder / "pods.json"
        self._scraped.write_text("[]")
        self.prometheus = PrometheusServer(folder, settings=_scrape(cluster, self._scraped))
        program = build.SERVICE.built() / "service"
        self._load = Process("load", [program, "load", str(self._targets), "0"], log=folder / "load.log")
        settings = {
            "metricsSource": {"settings": {"url": self.prometheus.url, "retries": 1}},
            "store": {"url": str(folder / "trimtab.db")},
            "webhook": {"enabled": False},
            "leaderElection": {"enabled": False},
            "address": f"127.0.0.1:{free_port()}",
            "intents": dict(intents or {}),
        }
        self.operator = OperatorProcess(
            cluster, folder, settings, kubeconfig=operator_kubeconfig(cluster, folder), name="operator"
        )

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            install(self.cluster, self.namespace)
            self.cluster.add_node().load(images.service())
            stack.enter_context(self.prometheus)
            self._targets.write_text("")
            self._load.start()
            stack.callback(self._load.kill)
            following = threading.Thread(target=self._follow_pods, daemon=True)
            following.start()
            stack.callback(following.join)
            stack.callback(self._ended.set)
            stack.callback(self.operator.kill)
            self._ending = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.close()
        uninstall(self.cluster, self.namespace)

    def apply(self, *manifests: Manifest) -> None:
        lines = "\n---\n".join(map(json.dumps, manifests))
        self.cluster.kubectl(
            "apply", "--server-side", f"--namespace={self.namespace}", "-f", "-", stdin=lines
        )

    def load(self, rate: float) -> None:
        """So many requests a second from now on."""
        self._rate = rate

    # What is

    @property
    def status(self) -> Manifest:
        """The status of the Intent."""
        path = f"/apis/trimtab.io/v1alpha1/namespaces/{self.namespace}/intents/{APP}"
        found: Manifest = self.cluster.call("GET", path).get("status", {})
        return found

    @property
    def verdict(self) -> str:
        return next((str(each["verdict"]) for each in self.status.get("objectives", ())), "")

    def pods(self) -> list[Manifest]:
        path = f"/api/v1/namespaces/{self.namespace}/pods?labelSelector=app={APP}"
        found = self.cluster.call("GET", path)["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def cpu(self) -> int:
        """The millicores that all pods ask for together."""
        return sum(millicores(pod["spec"]["containers"][0]) for pod in self.pods())

    def p95(self) -> float | None:
        """Return the current result of Prometheus; None without one."""
        pods = f'namespace="{self.namespace}"'
        found = self.prometheus.query(P95.replace(_PODS, pods))
        value = float(found[0]["value"][1]) if found else float("nan")
        return None if value != value else value  # noqa: PLR0124 - NaN

    def _follow_pods(self) -> None:
        """Let the generator and Prometheus know which pods there are, as a Service and its discovery would."""
        known: list[str] = []
        while not self._ended.wait(0.5):
            with suppress(OSError, KeyError):
                ready = {
                    pod["metadata"]["name"]: pod["status"]["podIP"] for pod in self.pods() if _is_ready(pod)
                }
                _write(self._targets, [f"rate {self._rate:g}", *(f"{ip}:{PORT}" for ip in ready.values())])
                if sorted(ready) != known:
                    known = sorted(ready)
                    scraped = [
                        {"targets": [f"{ip}:{PORT}"], "labels": {"namespace": self.namespace, "pod": name}}
                        for name, ip in ready.items()
                    ]
                    _write(self._scraped, [json.dumps(scraped)])


def _is_ready(pod: Manifest) -> bool:
    return any(
        each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", ())
    )


def _write(file: Path, lines: Sequence[str]) -> None:
    fresh = file.with_suffix(".new")
    fresh.write_text("\n".join(lines) + "\n")
    fresh.replace(file)


def _scrape(cluster: Cluster, pods: Path) -> Manifest:
    """The kubelet, and every pod of the service as it comes and goes."""
    found = {"job_name": "pods", "file_sd_configs": [{"files": [str(pods)], "refresh_interval": "1s"}]}
    return {"global": {"scrape_interval": "1s"}, "scrape_configs": [scrape_kubelet(cluster), found]}


def wait_while_pods_start(showcase: Showcase, *, timeout: float = 60.0) -> None:
    deadline = time.monotonic() + timeout
    while not any(map(_is_ready, showcase.pods())):
        if time.monotonic() > deadline:
            raise TimeoutError("the service's pod never became ready")
        time.sleep(0.2)
