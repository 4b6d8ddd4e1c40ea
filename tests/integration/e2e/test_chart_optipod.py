"""The policy and the configuration of the OptiPod document, exactly as written there, with the chart on a real node.

Status, `scan`, `explain` and dashboard give the same sizes and prices, and an OOM-killed container gets more memory.
"""

import http.cookiejar
import json
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from harness import UnavailableError
from harness.builders.busybox_workloads import grows, plods, size, template, workload
from harness.cluster.cluster import Cluster
from harness.e2e.e2e_env import eventually
from harness.peers.helm import Helm, HelmError
from harness.peers.prometheus import Prometheus
from integration.e2e.trimtab_image import CHART_VALUES, trimtab_image
from trimtab.cli import run

HOME, PRODUCTION = "optipod-system", "production"
DASHBOARD = "http://127.0.0.1:8090"
POLICY: dict[str, Any] = {
    # The group is ours; everything else is the document's.
    "apiVersion": "trimtab.io/v1alpha1",
    "kind": "OptimizationPolicy",
    "metadata": {"name": "production-workloads", "namespace": HOME},
    "spec": {
        "mode": "Auto",
        "selector": {
            "namespaceSelector": {"matchLabels": {"environment": "production"}},
            "workloadSelector": {"matchLabels": {"optimize": "true"}},
            "namespaces": {"allow": ["default", "production"], "deny": ["kube-system"]},
        },
        "metricsConfig": {
            "provider": "prometheus",
            "rollingWindow": "24h",
            "percentile": "P90",
            "safetyFactor": 1.2,
        },
        "resourceBounds": {"cpu": {"min": "100m", "max": "4000m"}, "memory": {"min": "128Mi", "max": "8Gi"}},
        "updateStrategy": {
            "allowInPlaceResize": True,
            "allowRecreate": False,
            "updateRequestsOnly": True,
        },
        "reconciliationInterval": "5m",
    },
}
POLICIES = f"/apis/trimtab.io/v1alpha1/namespaces/{HOME}/optimizationpolicies"
MIB = 1 << 20
HOURS = 730.0

pytestmark = pytest.mark.timeout(900)  # a node is started and given an image, which takes a busy machine long


@pytest.fixture(scope="module")
def prometheus(node_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Install everything as documented, and yield the address of the Prometheus."""
    node = node_cluster.add_node()
    node.load(trimtab_image())
    node_cluster.learn()
    for name, labels in ((HOME, {}), (PRODUCTION, {"environment": "production"})):
        node_cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    try:
        server = Prometheus(node_cluster, tmp_path_factory.mktemp("prometheus"))
    except UnavailableError as why:
        pytest.skip(str(why))
    host, _, served = node_cluster.server.removeprefix("https://").rpartition(":")
    helm = Helm(node_cluster, HOME)
    with server:
        try:
            for app, script, sized in (
                ("web", plods(rest=0.5), size("20m", "32Mi")),
                # It needs more than its limit.
                ("cache", grows(first=10, most=90, every=0.5), size("20m", "32Mi", memory_limit="64Mi")),
            ):
                manifest = workload("Deployment", app, template(script, app=app, size=sized), policy="none")
                manifest["metadata"]["labels"]["optimize"] = "true"
                _apply(node_cluster, PRODUCTION, manifest)
            _apply(node_cluster, HOME, POLICY)
            helm.install(
                *CHART_VALUES,
                "operator.dashboard=true",
                f"operator.env[0].name=KUBERNETES_SERVICE_HOST,operator.env[0].value={host}",
                f"operator.env[1].name=KUBERNETES_SERVICE_PORT,operator.env[1].value={served}",
                # The ConfigMap of the document.
                "operator.config.dryRun=false",
                "operator.config.metricsProvider=prometheus",
                f"operator.config.prometheusURL={server.url}",
                "operator.config.leaderElection=true",
                "operator.config.reconciliationInterval=5m",
                # A kubelet that is read each second gives enough samples in a minute.
                "operator.config.learning.step=3s,operator.config.learning.historyStep=3s",
                "operator.config.learning.history=15m,operator.config.learning.lateness=1m",
                "operator.config.prices.cpu=2,operator.config.prices.memory=1",
                "operator.config.prices.currency=€",
            )
            yield server.url
        finally:
            with suppress(HelmError):
                helm.uninstall()
            for name in (HOME, PRODUCTION):
                node_cluster.call("DELETE", f"/api/v1/namespaces/{name}")


def _apply(cluster: Cluster, namespace: str, manifest: dict[str, Any]) -> None:
    flags = ("--server-side", "--force-conflicts", "-n", namespace)
    cluster.kubectl("apply", *flags, "-f", "-", stdin=json.dumps(manifest))


def _status(cluster: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = cluster.call("GET", f"{POLICIES}/production-workloads").get("status", {})
    return found


def _entry(cluster: Cluster, name: str) -> dict[str, Any]:
    listed = _status(cluster).get("workloads", ())
    return next((each for each in listed if each["name"] == name), {})


def _containers(cluster: Cluster, app: str) -> list[dict[str, Any]]:
    pods = cluster.call("GET", f"/api/v1/namespaces/{PRODUCTION}/pods?labelSelector=app={app}")["items"]
    return [pod["spec"]["containers"][0]["resources"] for pod in pods]


def _wait(cluster: Cluster, is_so: Callable[[], bool], what: str) -> None:
    try:
        eventually(is_so, what=what, timeout=300)
    except Exception:
        print(json.dumps(_status(cluster), indent=1))
        print(cluster.kubectl("logs", "-n", HOME, "deploy/trimtab-operator", "--tail=60"))
        raise


def _read_dashboard(cluster: Cluster, path: str) -> bytes:
    """Return a page, as a viewer with a token of a ServiceAccount who may get policies sees it."""
    if not cluster.has(f"/api/v1/namespaces/{HOME}/serviceaccounts/viewer"):
        cluster.kubectl("create", "serviceaccount", "viewer", "-n", HOME)
        view = ("--verb=get", "--resource=optimizationpolicies.trimtab.io")
        cluster.kubectl("create", "clusterrole", "optipod-viewer", *view)
        bound = ("--clusterrole=optipod-viewer", f"--serviceaccount={HOME}:viewer")
        cluster.kubectl("create", "clusterrolebinding", "optipod-viewer", *bound)
    token = cluster.kubectl("create", "token", "viewer", "-n", HOME).strip()
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
    with opener.open(f"{DASHBOARD}/login", timeout=30):
        pass
    login = urllib.request.Request(
        f"{DASHBOARD}/login", urllib.parse.urlencode({"token": token}).encode(), {"Origin": DASHBOARD}
    )
    with opener.open(login, timeout=30):
        pass
    with opener.open(DASHBOARD + path, timeout=30) as answer:
        content: bytes = answer.read()
    return content


def test_policy_of_the_document_gives_the_same_sizes_everywhere(
    node_cluster: Cluster, prometheus: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # What it uses is far below the policy's minimum.
    minimum = {"cpu": "100m", "memory": "128Mi"}

    def is_resized() -> bool:
        return [each["requests"] for each in _containers(node_cluster, "web")] == [minimum]

    _wait(node_cluster, is_resized, "the pod of web to get the policy's minimum in place")
    # The change is complete when the pods were observed for ten minutes, by default.
    applied = {"Applying", "Applied"}
    _wait(node_cluster, lambda: _entry(node_cluster, "web").get("status") in applied, "the status")
    status, entry = _status(node_cluster), _entry(node_cluster, "web")
    assert {each["type"]: each["status"] for each in status["conditions"]} == {
        "Ready": "True",
        "MetricsAvailable": "True",
    }
    assert status["strategy"] == "percentile"
    ((recommended),) = entry["recommendations"]
    assert {name: recommended[name] for name in minimum} == minimum
    assert entry["lastRecommendation"]
    assert status["monthlyCost"]["currency"] == "€"

    cluster = ("--kubeconfig", str(node_cluster.kubeconfig), "--home", HOME, "--prometheus", prometheus)
    short = ("--days", "0.01", "--step", "5s")
    found: dict[str, Any] = {}
    scanned: dict[str, Any] = {}

    def is_scanned() -> bool:
        """Scan again until it has as many samples as it needs, too."""
        assert run(["scan", "-n", PRODUCTION, "--output", "json", *short, *cluster]) == 0
        scanned.update(json.loads(capsys.readouterr().out)["clusters"][0])
        found.update(next((each for each in scanned["workloads"] if each["name"] == "web"), {}))
        return bool(found)

    _wait(node_cluster, is_scanned, "web in the scan")
    assert (found["policy"], found["strategy"]) == (f"{HOME}/production-workloads", "percentile")
    assert found["containers"][0]["recommended"]["requests"] == minimum
    assert (scanned["prices"]["currency"], scanned["prices"]["cpu"]) == ("€", 2)
    assert found["costMonth"] == pytest.approx(HOURS * (2 * 0.1 + 1 / 8), abs=0.01)

    assert run(["explain", f"{PRODUCTION}/Deployment/web", *short, *cluster]) == 0
    explained = " ".join(capsys.readouterr().out.split())
    assert "production-workloads" in explained
    assert "100m" in explained
    assert "128Mi" in explained

    snapshot = json.loads(_read_dashboard(node_cluster, "/snapshot.json"))
    (row,) = [each for each in snapshot["workloads"] if each["name"] == "web"]
    assert row["policy"] == f"{HOME}/production-workloads"
    assert row["state"] in applied
    assert (row["should"]["cpu"], row["should"]["memory"]) == (0.1, 128 * MIB)
    assert row["cost"] == pytest.approx(HOURS * (2 * 0.1 + 1 / 8))
    assert "€" in json.dumps(snapshot, ensure_ascii=False)


def test_container_that_was_oom_killed_gets_more_memory_by_default(
    node_cluster: Cluster, prometheus: str
) -> None:
    def limits() -> list[str]:
        return [each["limits"]["memory"] for each in _containers(node_cluster, "cache")]

    def is_helped() -> bool:
        return bool(limits()) and "64Mi" not in limits()

    _wait(node_cluster, is_helped, "a higher memory limit after an OOM kill")

    def is_well() -> bool:
        pods = node_cluster.call("GET", f"/api/v1/namespaces/{PRODUCTION}/pods?labelSelector=app=cache")[
            "items"
        ]
        return [pod["status"]["containerStatuses"][0]["ready"] for pod in pods] == [True]

    _wait(node_cluster, is_well, "the container to run")
    events = node_cluster.kubectl("get", "events", "-n", PRODUCTION)
    assert "Resize" in events
