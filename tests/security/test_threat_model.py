"""The documentation names what every right of our accounts makes possible, and policies that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from trimtab.cli.docsgen import render_permissions
from trimtab.kube.rest.rbac import RBAC_RULES, Component

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
MANIFESTS: dict[Component, str] = {
    "operator": "operator/account.yaml",
    "dashboard": "operator/dashboard.yaml",
    "kubelet-source": "operator/kubelet-source.yaml",
    "agent": "agent/account.yaml",
    "scan": "scan/rights.yaml",
    "scan-policies": "scan/rights.yaml",
}
"""The manifest of each account; other tests compare their rules with `RBAC_RULES`."""


@pytest.mark.parametrize("component", MANIFESTS)
def test_permissions_state_the_harm_of_every_right(component: Component) -> None:
    assert [str(rule) for rule in RBAC_RULES[component] if not rule.risk] == []


def test_permissions_state_the_limit_of_every_right_to_write() -> None:
    reviews = {"tokenreviews", "subjectaccessreviews"}  # they answer a question and write nothing
    unlimited = [
        str(rule)
        for component in MANIFESTS
        for rule in RBAC_RULES[component]
        if not rule.limit
        and rule.resource not in reviews
        and not {"get", "list", "watch"}.issuperset(rule.verbs)
    ]
    assert unlimited == []


def test_permissions_cover_every_manifest_with_rights() -> None:
    files = {
        str(path.relative_to(DEPLOY))
        for path in DEPLOY.rglob("*.yaml")
        if re.search(r"^kind: (Cluster)?Role$", path.read_text(), re.MULTILINE)
    }
    assert files == set(MANIFESTS.values())


def test_permissions_name_policies_that_exist() -> None:
    existing = {
        document["metadata"]["name"]
        for path in DEPLOY.rglob("*.yaml")
        for document in yaml.safe_load_all(path.read_text())
        if isinstance(document, dict) and document.get("kind") == "ValidatingAdmissionPolicy"
    }
    assert set(re.findall(r"`(trimtab-(?:operator|agent)-[\w-]+)`", render_permissions())) == existing
