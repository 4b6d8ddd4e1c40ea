"""The manifests in deploy/: what the real API server takes, and exactly the rights that the code asks for."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.account import wait_for_home
from harness.cluster import Cluster
from trimtab import __version__
from trimtab.cli import run
from trimtab.kube.auth import load_connection
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.rbac import RBAC_RULES, SYSTEM_NAMESPACE
from trimtab.operator.config.loader import load_configuration
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.config.types import split_address
from trimtab.operator.webhook import registration
from trimtab.operator.webhook.lifecycle import WebhookLifecycle

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"

Granted = set[tuple[str, str, str, tuple[str, ...]]]


def documents(name: str) -> list[dict[str, Any]]:
    return [*yaml.safe_load_all((DEPLOY / "operator" / name).read_text())]


def of_kind(name: str, kind: str) -> dict[str, Any]:
    (found,) = [document for document in documents(name) if document["kind"] == kind]
    return found


def granted(role: dict[str, Any]) -> Granted:
    return {
        (group, resource, verb, tuple(rule.get("resourceNames", ())))
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def asked(*, home: bool) -> Granted:
    return {
        (right.group, right.resource, verb, right.names)
        for right in RBAC_RULES["operator"]
        for verb in right.verbs
        if right.own_namespace is home
    }


def as_operator(cluster: Cluster, folder: Path) -> Path:
    """A kubeconfig by which one is the operator."""
    kubeconfig = yaml.safe_load(cluster.kubeconfig.read_text())
    kubeconfig["users"][0]["user"]["as"] = f"system:serviceaccount:{SYSTEM_NAMESPACE}:trimtab-operator"
    (folder / "operator").write_text(yaml.safe_dump(kubeconfig))
    return folder / "operator"


@pytest.fixture(scope="module")
def deployed(cluster: Cluster) -> Iterator[None]:
    """All of deploy/ in the cluster; the webhooks, which nobody answers there, are taken away at once."""
    wait_for_home(cluster)
    cluster.kubectl("apply", "--server-side", "-k", str(DEPLOY))
    cluster.kubectl("delete", "-f", str(DEPLOY / "operator" / "webhooks.yaml"))
    yield
    for name in ("account.yaml", "namespace.yaml"):
        cluster.kubectl("delete", "--wait=false", "-f", str(DEPLOY / "operator" / name))


def test_the_roles_grant_exactly_what_the_code_asks_for() -> None:
    assert granted(of_kind("account.yaml", "ClusterRole")) == asked(home=False)
    assert granted(of_kind("account.yaml", "Role")) == asked(home=True)
    dashboard = {
        (each.group, each.resource, verb, ()) for each in RBAC_RULES["dashboard"] for verb in each.verbs
    }
    assert granted(of_kind("dashboard.yaml", "ClusterRole")) == dashboard
    assert "*" not in {word for rule in granted(of_kind("account.yaml", "ClusterRole")) for word in rule[:3]}


def test_everything_is_in_the_namespace_that_the_code_takes_for_home() -> None:
    assert (
        of_kind("namespace.yaml", "Namespace")["metadata"]["name"]
        == SYSTEM_NAMESPACE
        == OperatorConfig().namespace
    )
    for path in (DEPLOY / "operator").glob("*.yaml"):
        for document in documents(path.name):
            assert document["metadata"].get("namespace", SYSTEM_NAMESPACE) == SYSTEM_NAMESPACE


def test_the_kustomization_names_every_file_but_what_is_off_by_default() -> None:
    named = set(yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())["resources"])
    there = {
        str(path.relative_to(DEPLOY))
        for folder in ("crds", "operator")
        for path in (DEPLOY / folder).iterdir()
    }
    assert named == there - {"operator/dashboard.yaml"}


def test_the_image_is_of_this_version() -> None:
    (image,) = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())["images"]
    assert image["newTag"] == __version__


def test_the_webhooks_are_what_the_operator_applies() -> None:
    service = OperatorConfig().webhook.service
    for resource, path in registration.PATHS.items():
        reached = registration.build_service_reference(path, service=service, namespace=SYSTEM_NAMESPACE)
        applied = registration.build_configuration(
            resource, registration.build_policy_webhook(client=reached)
        )
        assert of_kind("webhooks.yaml", resource.kind) == applied


def test_ports_and_paths_are_those_of_the_configuration() -> None:
    config = load_configuration(
        text=of_kind("config.yaml", "ConfigMap")["data"]["config.yaml"], origin="config.yaml", environment={}
    )
    (container,) = of_kind("deployment.yaml", "Deployment")["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {
        "metrics": split_address(config.address)[1],
        "webhook": split_address(config.webhook.address)[1],
    }
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert str(Path(config.store.url).parent) in mounts


def test_the_account_has_all_rights_that_doctor_looks_for(
    cluster: Cluster, deployed: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubeconfig = as_operator(cluster, tmp_path)
    run(["doctor", "--kubeconfig", str(kubeconfig), "--process", "operator", "--output", "json"])
    (rights,) = [
        one for one in yaml.safe_load(capsys.readouterr().out) if one["check"] == "rights of operator"
    ]
    assert rights["state"] == "ok", rights["found"]


def pod_of(workload: dict[str, Any]) -> str:
    template, namespace = workload["spec"]["template"], workload["metadata"]["namespace"]
    metadata = {"name": "probe", "namespace": namespace, "labels": template["metadata"]["labels"]}
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})


def test_its_pod_is_let_in_where_only_restricted_pods_are(cluster: Cluster, deployed: None) -> None:
    pod = pod_of(of_kind("deployment.yaml", "Deployment"))
    assert "pod/probe created" in cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=pod)


def test_the_agents_pod_is_let_in_where_its_manifests_put_it(cluster: Cluster, deployed: None) -> None:
    """What it needs of its node no restricted pod may have."""
    agent = str(DEPLOY / "agent")
    made = [*yaml.safe_load_all(cluster.kubectl("kustomize", agent))]
    (daemons,) = [each for each in made if each["kind"] == "DaemonSet"]
    (binding,) = [each for each in made if each["kind"] == "ClusterRoleBinding"]
    assert {each["namespace"] for each in binding["subjects"]} == {daemons["metadata"]["namespace"]}
    cluster.kubectl("apply", "--server-side", "-k", agent)
    try:
        pod = pod_of(daemons)
        assert "pod/probe created" in cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=pod)
    finally:
        cluster.kubectl("delete", "--wait=false", "-k", agent)


async def test_its_rights_suffice_for_the_webhook_and_the_manifests_take_nothing_back(
    cluster: Cluster, deployed: None, tmp_path: Path
) -> None:
    webhooks = str(DEPLOY / "operator" / "webhooks.yaml")
    cluster.kubectl("apply", "--server-side", "-f", webhooks)
    try:
        async with Client(load_connection(kubeconfig=as_operator(cluster, tmp_path))) as client:
            config = OperatorConfig.model_validate({"webhook": {"pods": True}})
            gate = WebhookLifecycle(client, config, now=lambda: datetime.now(UTC))
            await gate.reconcile()
            assert gate.readiness_error() == ""
        cluster.kubectl("apply", "--server-side", "-f", webhooks)
        for resource in (registration.VALIDATING, registration.MUTATING):
            kept = yaml.safe_load(
                cluster.kubectl("get", resource.plural, registration.CONFIGURATION_NAME, "-o", "yaml")
            )
            for_policies, *for_pods = kept["webhooks"]
            assert for_policies["failurePolicy"] == config.webhook.failure_policy
            assert [each["failurePolicy"] for each in for_pods] == ["Ignore"] * (
                resource == registration.MUTATING
            )
            assert all(each["clientConfig"]["caBundle"] for each in kept["webhooks"])
    finally:
        cluster.kubectl("delete", "-f", webhooks)
