"""The manifests in deploy/: what the real API server takes, and exactly the rights that the code asks for."""

from pathlib import Path
from typing import Any

import yaml

from harness.builders.manifests import DEPLOY, documents, find_document
from trimtab import __version__
from trimtab.http_server import split_address
from trimtab.kube.rest.rbac import RBAC_RULES, SYSTEM_NAMESPACE, Component
from trimtab.operator.config.loader import load_configuration
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.webhook import registration

ROOT = Path(__file__).parents[2]

Granted = set[tuple[str, str, str, tuple[str, ...]]]


def granted_rights(role: dict[str, Any]) -> Granted:
    return {
        (group, resource, verb, tuple(rule.get("resourceNames", ())))
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def needed_rights(*, home: bool) -> Granted:
    return {
        (right.group, right.resource, verb, right.names)
        for right in RBAC_RULES["operator"]
        for verb in right.verbs
        if right.own_namespace is home
    }


def test_deploy_roles_grant_exactly_what_the_code_uses() -> None:
    assert granted_rights(find_document("account.yaml", "ClusterRole")) == needed_rights(home=False)
    assert granted_rights(find_document("account.yaml", "Role")) == needed_rights(home=True)
    optional: tuple[Component, ...] = ("dashboard", "kubelet-source")
    for feature in optional:
        needed = {
            (each.group, each.resource, verb, ()) for each in RBAC_RULES[feature] for verb in each.verbs
        }
        assert granted_rights(find_document(f"{feature}.yaml", "ClusterRole")) == needed
    assert "*" not in {
        word for rule in granted_rights(find_document("account.yaml", "ClusterRole")) for word in rule[:3]
    }


def test_deploy_manifests_are_in_the_home_namespace() -> None:
    assert (
        find_document("namespace.yaml", "Namespace")["metadata"]["name"]
        == SYSTEM_NAMESPACE
        == OperatorConfig().namespace
    )
    for path in (DEPLOY / "operator").glob("*.yaml"):
        for document in documents(path.name):
            assert document["metadata"].get("namespace", SYSTEM_NAMESPACE) == SYSTEM_NAMESPACE


def test_deploy_kustomization_names_each_file_that_is_on_by_default() -> None:
    named = set(yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())["resources"])
    there = {
        str(path.relative_to(DEPLOY))
        for folder in ("crds", "operator")
        for path in (DEPLOY / folder).iterdir()
    }
    assert named == there - {"operator/dashboard.yaml", "operator/kubelet-source.yaml"}


def test_deploy_image_has_the_version_of_the_package() -> None:
    (image,) = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())["images"]
    assert image["newTag"] == __version__


def test_deploy_webhooks_match_those_of_the_operator() -> None:
    service = OperatorConfig().webhook.service
    for resource, path in registration.PATHS.items():
        reached = registration.build_service_reference(path, service=service, namespace=SYSTEM_NAMESPACE)
        applied = registration.build_configuration(
            resource, registration.build_policy_webhook(client=reached)
        )
        assert find_document("webhooks.yaml", resource.kind) == applied


def test_deploy_ports_and_paths_match_the_configuration() -> None:
    config = load_configuration(
        text=find_document("config.yaml", "ConfigMap")["data"]["config.yaml"],
        origin="config.yaml",
        environment={},
    )
    (container,) = find_document("deployment.yaml", "Deployment")["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {
        "metrics": split_address(config.address)[1],
        "webhook": split_address(config.webhook.address)[1],
    }
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert str(Path(config.store.url).parent) in mounts
