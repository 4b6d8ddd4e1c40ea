"""The chart on a real node reads a real Prometheus behind a token and a private CA, both of a Secret that the configuration or
a policy names, and follows a rotation of the token without a restart.
"""

import json
import ssl
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from harness import UnavailableError
from harness.builders.busybox_workloads import plods, size, template, workload
from harness.builders.certificates import LOOPBACK, Authority
from harness.cluster.cluster import Cluster
from harness.e2e.e2e_env import eventually
from harness.peers.helm import Helm, HelmError
from harness.peers.prometheus import Prometheus
from integration.e2e.trimtab_image import CHART_VALUES, trimtab_image

NAMESPACE = "trimtab-guarded"
POLICIES = f"/apis/trimtab.io/v1alpha1/namespaces/{NAMESPACE}/optimizationpolicies"
TOKEN, TEAM_TOKEN, ROTATED = "the-token-of-a-secret", "the-token-of-a-team", "the-next-token-of-a-team"

pytestmark = pytest.mark.timeout(600)  # a node is started and given an image, which takes a busy machine long


@contextmanager
def guard(
    upstream: str, authority: Authority, tokens: set[str]
) -> Iterator[tuple[str, list[tuple[str, int]]]]:
    """Serve a Prometheus over TLS to whoever has one of the tokens; yield the address, and the token and the status of each
    response.
    """
    answered: list[tuple[str, int]] = []

    class Guard(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)) or None
            if self._token() not in tokens:
                self._send(401, b"", "text/plain")
                return
            kept = {name: self.headers[name] for name in ("Content-Type",) if name in self.headers}
            asked = urllib.request.Request(upstream + self.path, body, kept, method=self.command)
            with urllib.request.urlopen(asked, timeout=30) as answer:
                self._send(answer.status, answer.read(), answer.headers["Content-Type"])

        def _token(self) -> str:
            return (self.headers.get("Authorization") or "").removeprefix("Bearer ")

        do_GET = do_POST = _answer  # noqa: N815 - the names that the base class calls

        def _send(self, status: int, body: bytes, kind: str) -> None:
            answered.append((self._token(), status))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    pair = authority.issue("prometheus", hosts=LOOPBACK)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Guard)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}", answered
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _apply(cluster: Cluster, manifest: dict[str, Any]) -> None:
    flags = ("--server-side", "--force-conflicts", "-n", NAMESPACE)
    cluster.kubectl("apply", *flags, "-f", "-", stdin=json.dumps(manifest))


def _prepare(cluster: Cluster, authority: Authority) -> None:
    cluster.learn()
    cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    for name, token in (("prometheus", TOKEN), ("team", TEAM_TOKEN)):
        _apply_secret(cluster, name, token=token, authority=authority)
    for name, source in (("own", {}), ("team", {"metricsConfig": {"secret": "team"}})):
        policy = {
            "selector": {
                "namespaces": {"allow": [NAMESPACE]},
                "workloadSelector": {"matchLabels": {"policy": name}},
            },
            "reconciliationInterval": "10s",
            **source,
        }
        _apply(
            cluster,
            {
                "apiVersion": "trimtab.io/v1alpha1",
                "kind": "OptimizationPolicy",
                "metadata": {"name": name},
                "spec": policy,
            },
        )
        idler = template(plods(rest=0.5), app=name, size=size("100m", "32Mi"))
        _apply(cluster, workload("Deployment", name, idler, policy=name))


def _apply_secret(cluster: Cluster, name: str, *, token: str, authority: Authority) -> None:
    content = {"token": token, "ca.crt": authority.cert.read_text()}
    _apply(cluster, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": content})


def test_operator_reads_a_prometheus_with_the_secrets_of_configuration_and_policy(
    node_cluster: Cluster, tmp_path: Path
) -> None:
    node = node_cluster.add_node()
    node.load(trimtab_image())
    authority = Authority(tmp_path / "ca", "private")
    _prepare(node_cluster, authority)
    host, _, served = node_cluster.server.removeprefix("https://").rpartition(":")
    helm = Helm(node_cluster, NAMESPACE)
    (tmp_path / "data").mkdir()
    try:
        prometheus = Prometheus(node_cluster, tmp_path / "data")
    except UnavailableError as why:
        pytest.skip(str(why))
    tokens = {TOKEN, TEAM_TOKEN}
    with prometheus, guard(prometheus.url, authority, tokens) as (url, answered):
        try:
            helm.install(
                *CHART_VALUES,
                f"operator.env[0].name=KUBERNETES_SERVICE_HOST,operator.env[0].value={host}",
                f"operator.env[1].name=KUBERNETES_SERVICE_PORT,operator.env[1].value={served}",
                "operator.secrets={team}",
                "operator.config.metricsSource.secret=prometheus",
                f"operator.config.metricsSource.settings.url={url}",
            )

            def is_read(policy: str) -> bool:
                found = (
                    node_cluster.call("GET", f"{POLICIES}/{policy}").get("status", {}).get("conditions", ())
                )
                known = {each["type"]: each for each in found}
                return "known since" in known.get("MetricsAvailable", {}).get("message", "")

            for policy in ("own", "team"):
                eventually(partial(is_read, policy), what=f"samples for the policy {policy}", timeout=240)
            assert {token for token, _ in answered} == {TOKEN, TEAM_TOKEN}
            assert {status for _, status in answered} == {200}

            _apply_secret(node_cluster, "team", token=ROTATED, authority=authority)
            tokens.add(ROTATED)
            eventually(lambda: (ROTATED, 200) in answered, what="a request with the next token", timeout=240)
            pods = json.loads(node_cluster.kubectl("get", "pods", "-n", NAMESPACE, "-o", "json"))["items"]
            (operator,) = [each for each in pods if each["metadata"]["name"].startswith("trimtab-operator")]
            assert operator["status"]["containerStatuses"][0]["restartCount"] == 0
        except Exception:
            print(node_cluster.kubectl("describe", "pods", "-n", NAMESPACE))
            print(node_cluster.kubectl("logs", "-n", NAMESPACE, "deploy/trimtab-operator"))
            print(node_cluster.kubectl("get", "optimizationpolicy", "-n", NAMESPACE, "-o", "yaml"))
            raise
        finally:
            with suppress(HelmError):
                helm.uninstall()
            node_cluster.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}")
