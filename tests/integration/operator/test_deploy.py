"""The manifests in deploy/: what the real API server takes, and exactly the rights that the code asks for."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.builders.manifests import DEPLOY, find_document
from harness.cluster.account import become, manifests_of, wait_for_home
from harness.cluster.cluster import Cluster
from trimtab.cli import run
from trimtab.kube.auth import load_connection
from trimtab.kube.errors import Invalid
from trimtab.kube.rest.client import Client
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.webhook import registration
from trimtab.operator.webhook.lifecycle import WebhookLifecycle


def as_operator(cluster: Cluster, folder: Path) -> Path:
    """A kubeconfig by which one is the operator."""
    kubeconfig = yaml.safe_load(cluster.kubeconfig.read_text())
    kubeconfig["users"][0]["user"] |= become("operator")
    (folder / "operator").write_text(yaml.safe_dump(kubeconfig))
    return folder / "operator"


@pytest.fixture(scope="module")
def deployed(cluster: Cluster) -> Iterator[None]:
    """Apply all of deploy/ to the cluster; remove the webhooks at once, since no server answers them."""
    wait_for_home(cluster)
    cluster.kubectl("apply", "--server-side", "-k", str(DEPLOY))
    cluster.kubectl("delete", "-f", str(DEPLOY / "operator" / "webhooks.yaml"))
    yield
    for manifest in (*manifests_of("operator"), str(DEPLOY / "operator" / "namespace.yaml")):
        cluster.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", manifest)


def test_deploy_account_has_all_rights_that_doctor_checks(
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


def test_deploy_operator_pod_is_admitted_under_the_restricted_standard(
    cluster: Cluster, deployed: None
) -> None:
    pod = pod_of(find_document("deployment.yaml", "Deployment"))
    assert "pod/probe created" in cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=pod)


def test_deploy_agent_pod_is_admitted_in_its_namespace(cluster: Cluster, deployed: None) -> None:
    """The restricted profile forbids what the agent needs of its node."""
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


async def test_deploy_rights_suffice_for_the_webhook_which_manifests_keep(
    cluster: Cluster, deployed: None, tmp_path: Path
) -> None:
    webhooks = str(DEPLOY / "operator" / "webhooks.yaml")
    cluster.kubectl("apply", "--server-side", "-f", webhooks)
    # As an administrator does who sets webhook.pods.
    cluster.kubectl("delete", "-f", str(DEPLOY / "operator" / "pod-webhook.yaml"))
    try:
        async with Client(load_connection(kubeconfig=as_operator(cluster, tmp_path))) as client:
            config = OperatorConfig.model_validate({"webhook": {"pods": True}})
            gate = WebhookLifecycle(client, config, now=lambda: datetime.now(UTC))
            async with asyncio.timeout(30):
                while True:  # the API server takes a moment to forget the policy
                    with suppress(Invalid):
                        await gate.reconcile()
                        break
                    await asyncio.sleep(0.2)
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
