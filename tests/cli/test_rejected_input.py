"""Wrong input to the commands that read a cluster: one line, and exit code 2."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

import trimtab.cli._common.scan_options
from harness.cluster.port import ApiServer
from scan.scene import RunCommand
from trimtab.cli import run
from trimtab.scan.source_selection import SelectedSource
from trimtab.testing import ScriptedSource, steady
from trimtab.timing import Backoff
from trimtab.usage.usage import PodContainer

SHOP = "shop"


@pytest.fixture(scope="module")
def shop(cluster: ApiServer) -> Iterator[ApiServer]:
    """A cluster with three Deployments, one of which is scaled to zero."""
    cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": SHOP}})
    for name, replicas in (("web", 1), ("asleep", 0), ("unseen", 1)):
        labels = {"app": name}
        size = {"requests": {"cpu": "2", "memory": "2Gi"}}
        containers = [{"name": "app", "image": "app", "resources": size}]
        spec = {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
        }
        body = {"metadata": {"name": name}, "spec": spec}
        cluster.call("POST", f"/apis/apps/v1/namespaces/{SHOP}/deployments", body)
    yield cluster
    cluster.call("DELETE", f"/api/v1/namespaces/{SHOP}")


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Backoff, "delay", lambda *_, **__: 0.0)


@pytest.fixture
def ask(shop: ApiServer, capsys: pytest.CaptureFixture[str]) -> RunCommand:
    """Run a command on the shop, whose Prometheus does not answer."""

    def ask(command: str, *arguments: str) -> tuple[int, str, str]:
        where = ("--kubeconfig", str(shop.kubeconfig), "--prometheus", "http://127.0.0.1:9")
        code = run([command, *arguments, *where])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return ask


@pytest.fixture
def usage_of_web(shop: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the pod of `web` use a tenth of a core, and no other pod have any samples."""
    found = shop.call("GET", f"/api/v1/namespaces/{SHOP}/pods?labelSelector=app=web")["items"]
    pods = [PodContainer(SHOP, each["metadata"]["name"], "app") for each in found]

    @asynccontextmanager
    async def open_source(_client: object, **_: object) -> AsyncIterator[SelectedSource]:
        yield SelectedSource(ScriptedSource(steady(0.1, 1e8), *pods), "scripted", has_history=True)

    monkeypatch.setattr(trimtab.cli._common.scan_options, "open_source", open_source)


def edited_config(cluster: ApiServer, path: Path, **user: Any) -> str:
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"][0]["user"] |= user
    path.write_text(yaml.safe_dump(config))
    return str(path)


@pytest.fixture
def no_prometheus() -> Iterator[str]:
    """An address at which something else answers."""

    class Greeter(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>hello</html>")

        do_POST = do_GET  # noqa: N815 - the name that http.server calls

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Greeter)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--context", "elsewhere"], "elsewhere"),
        (["--strategy", "tarot"], "tarot"),
        (["--compare", "vpa,tarot"], "tarot"),
        (["--setting", "cpu_risk=7"], "cpu_risk"),
        (["--setting", "cpu_risk"], "name=value"),
        (["--kind", "Potato"], "Potato"),
        (["--namespace", "nowhere"], "nowhere"),
        (["--namespace", ""], "--namespace ''"),
        (["--top", "-1"], "--top -1"),
        (["--selector", "a==="], "--selector a==="),
        (["--selector", "app=nobody"], "no workloads found"),
        (["--fail-on", "boredom"], "boredom"),
        (["--days", "0"], "--days 0"),
        (["--step", "soon"], "--step"),
        (["--price-file", "/nowhere/prices"], "/nowhere/prices"),
        (["--price-cpu", "-1"], "cpu"),
        (["--output", "pdf"], "pdf"),
        (["--output-file", "/nowhere/report"], "/nowhere/report"),
    ],
)
def test_scan_rejects_bad_input_with_one_line_and_exit_2(
    ask: RunCommand, usage_of_web: None, arguments: list[str], line: str
) -> None:
    code, out, err = ask("scan", *arguments)
    assert (code, out) == (2, "")
    assert line in err
    assert err.count("\n") == 1


def test_scan_rejects_an_unknown_source(ask: RunCommand) -> None:
    code, out, err = ask("scan", "--source", "crystal-ball")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "crystal-ball" in err


def test_scan_rejects_an_address_that_is_not_prometheus(
    cluster: ApiServer, no_prometheus: str, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = no_prometheus.replace("http:", "https:")
    for address in (no_prometheus, secret, "http://127.0.0.1:9", "not-an-address"):
        assert run(["scan", "--kubeconfig", str(cluster.kubeconfig), "--prometheus", address]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.count("\n") == 1
        assert address.removeprefix("http://") in said.err or "url" in said.err
        assert ("does not use TLS" in said.err) == (address == secret)


def test_scan_without_metrics_fails_with_one_line(
    cluster: ApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubeconfig = edited_config(cluster, tmp_path / "nobody", **{"as": "nobody"})
    assert run(["scan", "--kubeconfig", kubeconfig]) == 2
    assert "--prometheus" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", [["scan"], ["doctor"], ["import", "vpa"], ["plan", "shop/web"]], ids=" ".join
)
def test_scan_reports_unreachable_cluster_and_expired_token(
    cluster: ApiServer,
    no_prometheus: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    command: list[str],
) -> None:
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": "expired"}
    (tmp_path / "old").write_text(yaml.safe_dump(config))
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
    (tmp_path / "away").write_text(yaml.safe_dump(config))
    config["clusters"][0]["cluster"] = {"server": no_prometheus}
    (tmp_path / "elsewhere").write_text(yaml.safe_dump(config))
    for name, words in (
        ("away", "cannot connect to https://127.0.0.1:9; check"),
        ("old", "log in again"),
        ("elsewhere", f"{no_prometheus} is not a Kubernetes API server; check"),
    ):
        assert run([*command, "--kubeconfig", str(tmp_path / name)]) == 2
        said = capsys.readouterr()
        assert words in said.err
        assert said.err.count("\n") == 1


def test_explain_png_requires_an_output_file(ask: RunCommand, usage_of_web: None) -> None:
    code, out, err = ask("explain", f"{SHOP}/deploy/web", "-o", "png")
    assert (code, out) == (2, "")
    assert "--output-file" in err


@pytest.mark.parametrize(
    ("workload", "line"),
    [
        ("web", "NAMESPACE/KIND/NAME"),
        ("{}/Potato/web", "Potato"),
        ("{}/Deployment/nobody", "the workload does not exist"),
        ("{}/Deployment/asleep", "is scaled to zero"),
        ("{}/Deployment/unseen", "no usage"),
    ],
)
def test_explain_rejects_bad_input_with_one_line_and_exit_2(
    ask: RunCommand, usage_of_web: None, workload: str, line: str
) -> None:
    code, out, err = ask("explain", workload.format(SHOP))
    assert (code, out) == (2, "")
    assert line in err
    assert err.count("\n") == 1


def test_explain_rejects_unknown_strategy_in_one_line(ask: RunCommand, usage_of_web: None) -> None:
    code, out, err = ask("explain", f"{SHOP}/deploy/web", "--strategy", "My_Own")
    assert (code, out) == (2, "")
    assert "strategy 'My_Own' is not known; there are: " in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        (["doctor", "--source-setting", "tenant"], "--source-setting tenant: write it as name=value"),
        (["patch", "web"], "WORKLOAD web: write it as NAMESPACE/KIND/NAME"),
        (["patch", "-n", SHOP, "--format", "helm"], "--file: name the files to edit"),
        (["patch", "-n", SHOP, "--write"], "--write: edits the files of --file"),
        (["patch", "-n", SHOP, "--yes"], "--dry-run and --yes belong to --apply"),
        (["patch", "-n", SHOP, "--directory", "x"], "--directory: only for patches"),
        (["diff", f"{SHOP}/deployment/wbe"], f"WORKLOAD {SHOP}/deployment/wbe: the workload does not exist"),
        (["diff", f"{SHOP}/deployment/web", "-n", SHOP], "WORKLOAD: contains the namespace and the kind"),
    ],
)
def test_changing_commands_reject_wrong_usage_in_one_line(
    ask: RunCommand, usage_of_web: None, asked: list[str], line: str
) -> None:
    code, _, err = ask(*asked)
    assert code == 2
    assert err.startswith(f"trimtab: {line}")
