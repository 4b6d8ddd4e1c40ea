"""`trimtab plan`: what would be done for an intent, on a terminal and as data, without a cluster and with one."""

import json
import time
from pathlib import Path

import pytest

from harness import UnavailableError
from harness.cluster.cluster import Cluster
from harness.faults.faultproxy import FaultProxy
from harness.faults.faults import Fault, Kind
from harness.peers.prometheus import Recorded
from trimtab.cli import run
from trimtab.errors import TrimtabError
from trimtab.kube.auth import load_connection
from trimtab.kube.rest.client import Client
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.intents import preview as planning
from trimtab.operator.intents.preview import preview_intent


def test_plan_of_a_cluster_equals_the_operators_plan(
    cluster: Cluster, namespace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.learn()
    container = {"name": "web", "image": "web", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
    labels = {"app": "web"}
    spec = {
        "replicas": 0,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
    }
    cluster.call(
        "POST",
        f"/apis/apps/v1/namespaces/{namespace}/deployments",
        {"metadata": {"name": "web"}, "spec": spec},
    )
    ours = f"/apis/trimtab.io/v1alpha1/namespaces/{namespace}"
    objective = {"name": "availability", "value": 0.9, "measuredBy": "availability"}
    intent = {"targetRef": {"name": "web"}, "objectives": [objective]}
    for plural, kind, name, said in (
        ("kpiprofiles", "KPIProfile", "availability", {"type": "availability"}),
        ("intents", "Intent", "web", intent),
    ):
        body = {"apiVersion": "trimtab.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": said}
        cluster.call("POST", f"{ours}/{plural}", body)
    try:
        prometheus = Recorded(tmp_path, "")
    except UnavailableError as why:
        pytest.skip(str(why))
    with prometheus:
        cluster_options = ["--kubeconfig", str(cluster.kubeconfig), "--prometheus", prometheus.url]
        assert run(["plan", f"{namespace}/web", *cluster_options, "-o", "json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["state"]["objectives"] == {"availability": 0.0}
        assert "scaled to zero" in found["plan"]["why"][0]
        assert run(["plan", f"{namespace}/nobody", *cluster_options]) == 2
        assert "the Intent does not exist" in capsys.readouterr().err


async def test_plan_does_not_report_unreadable_intents_as_missing(
    cluster: Cluster, fault_proxy: FaultProxy
) -> None:
    cluster.learn()
    refused = Fault(kind=Kind.STATUS, status=403)
    fault_proxy.fail_next(refused, count=40, match=lambda asked: "/intents" in asked.path)
    async with Client(load_connection(kubeconfig=fault_proxy.kubeconfig)) as client:
        with pytest.raises(TrimtabError, match="shop/web: Intents cannot be read: "):
            await preview_intent(client, OperatorConfig(), ("shop", "web"), now=time.time())


async def test_plan_names_what_cannot_be_read_of_a_cluster(
    cluster: Cluster, namespace: str, fault_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a user may not list HorizontalPodAutoscalers: the wait for them ended in a traceback."""
    cluster.learn()
    monkeypatch.setattr(planning, "SYNC_TIMEOUT", 3.0)
    body = {
        "apiVersion": "trimtab.io/v1alpha1",
        "kind": "Intent",
        "metadata": {"name": "web"},
        "spec": {"targetRef": {"name": "web"}, "objectives": [{"name": "a", "value": 1, "measuredBy": "a"}]},
    }
    cluster.call("POST", f"/apis/trimtab.io/v1alpha1/namespaces/{namespace}/intents", body)
    refused = Fault(kind=Kind.STATUS, status=403)
    fault_proxy.fail_next(refused, count=40, match=lambda asked: "horizontalpodautoscalers" in asked.path)
    async with Client(load_connection(kubeconfig=fault_proxy.kubeconfig)) as client:
        with pytest.raises(TrimtabError, match="could not be read within 3 s: horizontalpodautoscalers"):
            await preview_intent(client, OperatorConfig(), (namespace, "web"), now=time.time())


async def test_plan_of_a_missing_intent_asks_for_nothing_else(
    cluster: Cluster, fault_proxy: FaultProxy
) -> None:
    """Without the rights to read the whole cluster, the error of a wrong name still comes at once."""
    cluster.learn()
    async with Client(load_connection(kubeconfig=fault_proxy.kubeconfig)) as client:
        with pytest.raises(
            TrimtabError, match="shop/nobody: the Intent does not exist; `kubectl get intents"
        ):
            await preview_intent(client, OperatorConfig(), ("shop", "nobody"), now=time.time())
    assert [asked.path.rpartition("/")[2] for asked in fault_proxy.asked] == ["nobody"]
