"""`diff`, `patch`, `backtest` and `doctor` on the real API server, with a real Prometheus that knows the past."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.cluster.cluster import Cluster
from harness.peers.prometheus import Recorded
from trimtab.cli import run
from usage.recording import CPU, MEMORY, T0, MetricRecording, container_labels

MIB = 2**20
SHOP = "test-patch"
Object = dict[str, Any]

MANIFEST = f"""\
# The shop's front.
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: {SHOP}
spec:
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      containers:
        - name: app        # the only one
          image: registry.example/web:1
          resources:
            requests: {{cpu: 2, memory: 2Gi}}
            limits:
              memory: 2Gi  # never more
"""


class Shop:
    """A Deployment that asks for far too much, and a Prometheus that knows."""

    def __init__(self, cluster: Cluster, prometheus: Recorded) -> None:
        self.cluster = cluster
        self._options = ["--kubeconfig", str(cluster.kubeconfig), "--prometheus", prometheus.url]

    def run(self, command: str, *options: str, days: float = 2) -> int:
        return run([command, *self._options, "--days", str(days), *options])

    @property
    def resources(self) -> Object:
        found = self.cluster.call("GET", f"/apis/apps/v1/namespaces/{SHOP}/deployments/web")
        resources: Object = found["spec"]["template"]["spec"]["containers"][0]["resources"]
        return resources


def past(pod: str) -> str:
    recording, labels = MetricRecording(), container_labels(pod, namespace=SHOP)
    first = time.time() - 2 * 86400 - T0
    times = [first + 60 * number for number in range(2 * 1440)]
    recording.add(CPU, labels, [(t, 0.1 * (t - first)) for t in times])
    recording.add(MEMORY, labels, [(t, 200.0 * MIB) for t in times])
    return recording.text


@pytest.fixture(scope="module")
def shop(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    cluster.kubectl("create", "namespace", SHOP)
    cluster.kubectl("create", "-f", "-", stdin=MANIFEST)
    with Recorded(tmp_path_factory.mktemp("prometheus"), past("web-7c9f8d6b5-x2x2x")) as prometheus:
        yield Shop(cluster, prometheus)
    cluster.kubectl("delete", "namespace", SHOP, "--wait=false")


def test_backtest_replays_the_clusters_own_usage(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    assert shop.run("backtest", "-n", SHOP, "--strategy", "vpa", "--output", "json") == 0
    out, err = capsys.readouterr()
    vpa, oracle = json.loads(out)
    assert (vpa["strategy"], oracle["strategy"], vpa["containers"]) == ("vpa", "oracle", 1)
    assert vpa["source"].startswith("Prometheus at http://127.0.0.1:")
    assert err.startswith("trimtab: reading usage costs about ")


def test_doctor_reports_what_a_scan_would_read(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    assert shop.run("doctor", "-n", SHOP, "-o", "json") == 0
    findings = {each["check"]: each for each in json.loads(capsys.readouterr().out)}
    assert findings["usage"]["found"].startswith("prometheus: http://127.0.0.1:")
    assert "labels: namespace, pod, container" in findings["usage"]["found"]
    assert findings["retention"]["state"] == "ok"
    assert findings["cost of a scan"]["found"].startswith("about 2 queries")
    assert findings["requests"]["state"] == findings["autoscalers"]["state"] == "ok"
    assert shop.run("doctor", "-n", SHOP, "-o", "json", "--source-setting", "tenant=shop", days=30) == 0
    findings = {each["check"]: each for each in json.loads(capsys.readouterr().out)}
    assert findings["retention"]["state"] == "warning"
    assert findings["retention"]["found"] == "usage data covers about 1.9 days, but a scan reads 30"


def amounts(resources: Object) -> tuple[str, str, str]:
    return resources["requests"]["cpu"], resources["requests"]["memory"], resources["limits"]["memory"]


def test_diff_exits_with_one_and_shows_both_sides(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    assert shop.run("diff", f"{SHOP}/deploy/web") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [f"--- {SHOP}/deployment/web now", f"+++ {SHOP}/deployment/web recommended"]
    assert "-      cpu: '2'" in lines
    assert shop.run("diff", "-n", SHOP, "-o", "json") == 1
    (found,) = json.loads(capsys.readouterr().out)
    assert amounts(found["containers"][0]["now"]) == ("2", "2Gi", "2Gi")


@pytest.mark.parametrize("command", ["diff", "patch"])
def test_little_usage_is_no_ground_for_a_change_without_force(
    shop: Shop, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert shop.run(command, "-n", SHOP, days=0.02) == 2
    err = capsys.readouterr().err
    assert f"Deployment {SHOP}/web: skipped: only" in err
    assert "minutes of usage known from Prometheus" in err
    assert "no workload has enough usage for a recommendation: 1 workload skipped" in err
    assert shop.run(command, "-n", SHOP, "--force", days=0.02) == int(command == "diff")
    assert "low confidence, " in capsys.readouterr().out


def test_patch_output_is_accepted_by_kubectl_and_kustomize(
    shop: Shop, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shop.run("patch", "-n", SHOP, "--format", "kustomize", "--directory", str(tmp_path / "sized")) == 0
    (tmp_path / "web.yaml").write_text(MANIFEST)
    whole = {"resources": ["web.yaml"], "components": ["sized"]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(whole))
    built = yaml.safe_load(shop.cluster.kubectl("kustomize", str(tmp_path)))
    (container,) = built["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example/web:1"
    cpu, memory, limit = amounts(container["resources"])
    assert (cpu, memory, limit) != ("2", "2Gi", "2Gi")
    capsys.readouterr()
    assert shop.run("patch", "-n", SHOP) == 0
    command = capsys.readouterr().out
    assert f"-n {SHOP} deployments.apps/web --containers=app --requests=cpu={cpu},memory={memory}" in command
    set_, *words = command.split()[1:]
    shop.cluster.kubectl(set_, *words, "--dry-run=server")
    assert shop.run("patch", "-n", SHOP, "--format", "strategic") == 0
    (patch,) = yaml.safe_load_all(capsys.readouterr().out)
    assert patch["spec"]["template"]["spec"]["containers"] == [
        {"name": "app", "resources": container["resources"]}
    ]


def test_patch_edits_manifests_and_values_in_place(
    shop: Shop, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, values = tmp_path / "k8s", tmp_path / "values.yaml"
    folder.mkdir()
    (folder / "web.yaml").write_text(MANIFEST)
    values.write_text(
        "# ours\nresources: # all of it\n  limits: {memory: 2Gi}\n  requests: {cpu: 2, memory: 2Gi}\n"
    )
    options = ["patch", "-n", SHOP, "--format", "manifests", "--file", str(folder)]
    assert shop.run(*options) == 0
    assert "+            requests: {cpu: " in capsys.readouterr().out
    assert (folder / "web.yaml").read_text() == MANIFEST, "without --write it is only shown"
    assert shop.run(*options, "--write") == 0
    edited = (folder / "web.yaml").read_text()
    new = amounts(yaml.safe_load(edited)["spec"]["template"]["spec"]["containers"][0]["resources"])
    expected = MANIFEST.replace("{cpu: 2, memory: 2Gi}", f"{{cpu: {new[0]}, memory: {new[1]}}}")
    assert edited == expected.replace("memory: 2Gi  #", f"memory: {new[2]}  #")
    helm = ["patch", "-n", SHOP, "--format", "helm", "--file", str(values), "--write"]
    assert shop.run(*helm) == 1, "nothing says whose values these are"
    assert shop.run(*helm, "--helm-path", "app=resources") == 0
    assert amounts(yaml.safe_load(values.read_text())["resources"]) == new
    assert values.read_text().startswith("# ours\nresources: # all of it\n")


def test_patch_apply_does_a_dry_run_and_then_applies(
    shop: Shop, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = ["patch", "-n", SHOP, "--apply"]
    assert shop.run(*apply) == 2
    assert "there is no terminal for the confirmation; add --yes" in capsys.readouterr().err
    assert shop.run(*apply, "--dry-run", "server") == 1
    assert 'conflicts with "kubectl-create"' in (err := capsys.readouterr().err)
    assert "; --force takes them over" in err
    assert shop.run(*apply, "--dry-run", "server", "--force") == 0
    assert f"Deployment {SHOP}/web: would be changed" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", Answering("n\n"))
    assert shop.run(*apply, "--force") == 0
    assert "nothing was changed" in capsys.readouterr().err
    assert amounts(shop.resources) == ("2", "2Gi", "2Gi")
    monkeypatch.setattr("sys.stdin", Answering("y\n"))
    assert shop.run(*apply, "--force") == 0
    assert f"Deployment {SHOP}/web: changed" in capsys.readouterr().err
    assert amounts(shop.resources) != ("2", "2Gi", "2Gi")
    assert shop.run("diff", "-n", SHOP) == 0


class Answering:
    """A terminal at which somebody gives one answer."""

    def __init__(self, line: str) -> None:
        self.readline = lambda: line

    def isatty(self) -> bool:
        return True
