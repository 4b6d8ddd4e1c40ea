"""`trimtab doctor` on an API server: what it finds, what it advises, how it ends."""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from harness.cluster.port import ApiServer
from trimtab.cli import run
from trimtab.cli._common.doctor_checks import CheckResult
from trimtab.cli._common.webhook_check import check_webhook
from trimtab.kube.auth import load_connection
from trimtab.kube.rest.client import Client
from trimtab.operator.webhook.registration import (
    CONFIGURATION_NAME,
    PATHS,
    build_configuration,
    build_policy_webhook,
)

Examine = Callable[..., tuple[int, dict[str, dict[str, str]]]]


@pytest.fixture
def examine(cluster: ApiServer, capsys: pytest.CaptureFixture[str]) -> Examine:
    def examine(*options: str) -> tuple[int, dict[str, dict[str, str]]]:
        whose = () if "--kubeconfig" in options else ("--kubeconfig", str(cluster.kubeconfig))
        code = run(["doctor", *whose, "--output", "json", *options])
        findings: list[dict[str, str]] = json.loads(capsys.readouterr().out)
        return code, {finding["check"]: finding for finding in findings}

    return examine


def edited_config(cluster: ApiServer, path: Any, **user: Any) -> str:
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"][0]["user"] |= user
    path.write_text(yaml.safe_dump(config))
    return str(path)


def bind(cluster: ApiServer, namespace: str, role: str, user: str) -> None:
    """Give a user a role in a namespace."""
    group = "rbac.authorization.k8s.io"
    binding = {
        "metadata": {"name": user},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }
    cluster.call("POST", f"/apis/{group}/v1/namespaces/{namespace}/rolebindings", binding)


def test_doctor_names_the_checked_cluster(examine: Examine, cluster: ApiServer) -> None:
    code, findings = examine()
    assert code == 0
    assert findings["cluster"]["state"] == "ok"
    assert cluster.server in findings["cluster"]["found"]
    assert "Kubernetes v1.36" in findings["cluster"]["found"]


def test_doctor_passes_for_an_administrator_on_a_new_cluster(examine: Examine) -> None:
    _, findings = examine("--process", "agent")
    assert findings["rights of agent"]["state"] == "ok"
    assert findings["resize in place"]["state"] == "ok"


def test_doctor_names_missing_rights_and_the_remedy(
    cluster: ApiServer, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    kubeconfig = edited_config(cluster, tmp_path / "nobody", **{"as": "nobody"})
    code = run(["doctor", "--kubeconfig", kubeconfig])
    shown = " ".join(capsys.readouterr().out.split())
    assert code == 1
    assert "missing in all namespaces: list pods; list deployments.apps" in shown
    assert "ask your administrator for a role with these verbs" in shown


def test_doctor_checks_rights_in_the_given_namespace(
    cluster: ApiServer, namespace: str, tmp_path: Any
) -> None:
    kubeconfig = edited_config(cluster, tmp_path / "reader", **{"as": f"reader-of-{namespace}"})
    bind(cluster, namespace, "cluster-admin", f"reader-of-{namespace}")
    assert run(["doctor", "--kubeconfig", kubeconfig, "--process", "agent"]) == 1
    findings = run(["doctor", "--kubeconfig", kubeconfig, "--namespace", namespace, "--output", "json"])
    assert findings == 1, "its Services elsewhere are still not for it to see"


def test_doctor_checks_operator_rights_in_its_namespace(
    examine: Examine, cluster: ApiServer, namespace: str, tmp_path: Any
) -> None:
    kubeconfig = edited_config(cluster, tmp_path / "tenant", **{"as": f"tenant-of-{namespace}"})
    bind(cluster, namespace, "cluster-admin", f"tenant-of-{namespace}")
    here = ("--kubeconfig", kubeconfig, "--process", "operator", "-n", namespace)
    _, findings = examine(*here)
    assert findings["rights of operator"]["found"].endswith(
        ": get, create, update leases.coordination.k8s.io in trimtab-system; "
        "list, watch configmaps trimtab-stop in trimtab-system; create secrets in trimtab-system; "
        "get, update secrets trimtab-webhook in trimtab-system"
    )
    _, findings = examine(*here, "--home", namespace)
    assert findings["rights of operator"]["state"] == "ok"


def test_doctor_fails_on_missing_crds_only_for_the_operator(
    examine: Examine, cluster: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.learn()
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    cluster.call("DELETE", f"{definitions}/nodemetrics.trimtab.io")
    code, findings = examine("--process", "operator")
    assert (code, findings["kinds"]["state"]) == (1, "problem")
    assert "NodeMetric" in findings["kinds"]["found"]
    assert findings["kinds"]["advice"].startswith("trimtab crds | kubectl apply --server-side -f -")
    _, findings = examine()
    assert findings["kinds"]["state"] == "warning"
    assert findings["kinds"]["advice"].startswith("a scan needs none")
    run(["crds"])
    for definition in yaml.safe_load_all(capsys.readouterr().out):
        if definition["metadata"]["name"] == "nodemetrics.trimtab.io":
            cluster.call("POST", definitions, definition)
    code, findings = examine("--process", "operator")
    assert (code, findings["kinds"]["state"]) == (0, "ok")


def test_doctor_finds_prometheus_by_service_labels(
    examine: Examine, cluster: ApiServer, namespace: str
) -> None:
    _, findings = examine()
    assert findings["history"]["state"] == "warning"
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "metrics", "namespace": namespace, "labels": {"app": "prometheus"}},
        "spec": {"ports": [{"name": "grpc", "port": 10901}, {"name": "web", "port": 9090}]},
    }
    cluster.call("POST", f"/api/v1/namespaces/{namespace}/services", service)
    _, findings = examine()
    address = f"http://metrics.{namespace}.svc:9090"
    untrusted = "the operator does not trust a server that it finds in that namespace"
    assert findings["history"]["found"] == f"Prometheus at {address}; {untrusted}"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--context", "elsewhere"], "elsewhere"),
        (["--kubeconfig", "/nowhere/config"], "/nowhere/config"),
        (["--process", "barber"], "barber"),
        (["--output", "xml"], "xml"),
    ],
)
def test_doctor_rejects_bad_input_with_one_line_and_exit_2(
    cluster: ApiServer, capsys: pytest.CaptureFixture[str], arguments: list[str], line: str
) -> None:
    given = (
        arguments if "--kubeconfig" in arguments else ["--kubeconfig", str(cluster.kubeconfig), *arguments]
    )
    assert run(["doctor", *given]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert line in captured.err
    assert captured.err.count("\n") == 1


def test_doctor_reports_an_unreachable_cluster(
    cluster: ApiServer, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
    (tmp_path / "away").write_text(yaml.safe_dump(config))
    assert run(["doctor", "--kubeconfig", str(tmp_path / "away")]) == 2
    captured = capsys.readouterr()
    assert "cannot connect" in captured.err
    assert captured.err.count("\n") == 1


@pytest.fixture
def register(cluster: ApiServer) -> Iterator[Callable[..., None]]:
    """Registers a webhook for policies at this address and removes it at the end."""
    cluster.learn()
    at = "/apis/admissionregistration.k8s.io/v1"

    def register(place: dict[str, Any], failure_policy: str = "Fail") -> None:
        for resource, path in PATHS.items():
            reached = {"url": place["url"] + path} if "url" in place else {"service": place | {"path": path}}
            webhook = build_policy_webhook(client=reached, failurePolicy=failure_policy)
            cluster.call("POST", f"{at}/{resource.plural}", build_configuration(resource, webhook))

    yield register
    for resource in PATHS:
        if cluster.has(f"{at}/{resource.plural}/{CONFIGURATION_NAME}"):
            cluster.call("DELETE", f"{at}/{resource.plural}/{CONFIGURATION_NAME}")


def test_doctor_finds_no_webhook_where_none_is_registered(examine: Examine) -> None:
    _, findings = examine()
    assert findings["webhook"]["state"] == "ok"
    assert "no webhook is registered" in findings["webhook"]["found"]


def test_doctor_finds_a_webhook_whose_service_does_not_exist(
    examine: Examine, register: Callable[..., None], cluster: ApiServer, namespace: str
) -> None:
    register({"name": "trimtab-webhook", "namespace": namespace, "port": 443})
    code, findings = examine()
    found = findings["webhook"]
    assert (code, found["state"]) == (1, "problem")
    assert f"lead to Service {namespace}/trimtab-webhook: the Service does not exist" in found["found"]
    assert "the API server rejects every policy" in found["found"]
    assert "kubectl delete validatingwebhookconfiguration trimtab" in found["advice"]
    service = {"metadata": {"name": "trimtab-webhook"}, "spec": {"ports": [{"port": 443}]}}
    cluster.call("POST", f"/api/v1/namespaces/{namespace}/services", service)
    _, findings = examine()
    assert "the Service has no ready pods" in findings["webhook"]["found"]


def test_doctor_warns_of_a_webhook_that_fails_open(
    examine: Examine, register: Callable[..., None], namespace: str
) -> None:
    register({"name": "trimtab-webhook", "namespace": namespace, "port": 443}, "Ignore")
    code, findings = examine()
    assert (code, findings["webhook"]["state"]) == (0, "warning")
    assert "policies are accepted without the operator's validation" in findings["webhook"]["found"]


def test_doctor_skips_webhooks_without_rights(cluster: ApiServer, tmp_path: Any) -> None:
    async def look() -> CheckResult:
        kubeconfig = edited_config(cluster, tmp_path / "nobody", **{"as": "nobody"})
        async with Client(load_connection(kubeconfig=kubeconfig)) as client:
            return await check_webhook(client)

    found = asyncio.run(look())
    assert (found.state, "you are not allowed to read" in found.found) == ("ok", True)
