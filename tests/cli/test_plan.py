"""`trimtab plan`: what would be done for an intent, on a terminal and as data, without a cluster and with one."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from harness import UnavailableError
from harness.cluster import Cluster
from harness.faultproxy import FaultProxy
from harness.faults import Fault, Kind
from harness.prometheus import Recorded
from trimtab.cli import run
from trimtab.errors import TrimtabError
from trimtab.kube.auth import load_connection
from trimtab.kube.errors import NotFound, Status
from trimtab.kube.rest.client import Client
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.intents import preview as planning
from trimtab.operator.intents.preview import preview_intent

EXAMPLES = Path(__file__).parents[2] / "examples"
MANIFEST, STATE = EXAMPLES / "plan" / "intent.yaml", EXAMPLES / "plan" / "state.json"


def test_plan_shows_the_plan_its_reason_and_alternatives(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["plan", "-f", str(MANIFEST), "--state", str(STATE)]) == 0
    out = capsys.readouterr().out
    for words in ("meet the missed objectives", "p99-latency is 25, wanted 20", "Alternatives", "examined"):
        assert words in out
    assert max(map(len, out.splitlines())) <= 80


def test_plan_json_has_the_whole_search(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "-f", str(MANIFEST), "--state", str(STATE), "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["plan"]["purpose"] == "Reach"
    assert {each["verdict"] for each in found["plan"]["outcomes"]} == {"Met"}
    assert found["plan"]["alternatives"]


def test_plan_takes_no_action_on_unknown_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = json.loads(STATE.read_text())
    state["objectives"]["p99-latency"] = None
    (tmp_path / "state.json").write_text(json.dumps(state))
    assert run(["plan", "-f", str(MANIFEST), "--state", str(tmp_path / "state.json")]) == 0
    assert "unknown: p99-latency" in capsys.readouterr().out


def test_plan_applies_guardrails_to_a_state_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "operator.yaml"
    config.write_text("intents: {guardrails: [{forbidden: [resizeCPU], maxPriority: 0.3}]}\n")
    arguments = ["-f", str(MANIFEST), "--state", str(STATE), "--config", str(config)]
    assert run(["plan", *arguments]) == 0
    out = capsys.readouterr().out
    assert "priority 0.3" in out
    assert "scaleOut" in out
    assert "resizeCPU" not in out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "NAMESPACE/NAME"),
        (["web"], "NAMESPACE/NAME, like shop/web"),
        (["-f", "x.yaml"], "--file and --state go together"),
        (["-f", "x.yaml", "--state", "x.json"], "x.yaml"),
        (["-f", str(EXAMPLES / "intent.yaml"), "--state", str(STATE)], "no KPIProfile"),
    ],
)
def test_plan_rejects_wrong_input_in_one_line(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", *arguments]) == 2
    said = capsys.readouterr().err
    assert line in said
    assert said.count("\n") == 1


def test_plan_rejects_a_file_that_is_not_a_manifest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "notes.yaml"
    file.write_text("to do\n")
    assert run(["plan", "-f", str(file), "--state", str(STATE)]) == 2
    assert "must have one Intent, and has 0" in capsys.readouterr().err
    file.write_bytes(b'{"objectives": {"p99": "\xff"}}')
    assert run(["plan", "-f", str(MANIFEST), "--state", str(file)]) == 2
    assert str(file) in capsys.readouterr().err


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
        assert "there is no such Intent" in capsys.readouterr().err


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
    """Whoever has not the rights to read the whole cluster is told at once that the name is wrong."""
    cluster.learn()
    async with Client(load_connection(kubeconfig=fault_proxy.kubeconfig)) as client:
        with pytest.raises(TrimtabError, match="shop/nobody: there is no such Intent; `kubectl get intents"):
            await preview_intent(client, OperatorConfig(), ("shop", "nobody"), now=time.time())
    assert [asked.path.rpartition("/")[2] for asked in fault_proxy.asked] == ["nobody"]


@pytest.mark.parametrize(
    ("reason", "line"),
    [("", "does not know Intents; .* kubectl apply --server-side"), ("NotFound", "no such")],
)
async def test_plan_distinguishes_a_missing_kind_from_a_missing_intent(reason: str, line: str) -> None:
    class Server:
        async def get(self, *_: object, **__: object) -> None:
            raise NotFound(Status(message="404 page not found", reason=reason, code=404))

    server: Any = Server()
    with pytest.raises(TrimtabError, match=line):
        await preview_intent(server, OperatorConfig(), ("shop", "web"), now=time.time())
