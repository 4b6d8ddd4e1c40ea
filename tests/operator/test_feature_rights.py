"""Each documented feature has the rights that it needs, by the manifests that the documentation names for it."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from trimtab.kube.rest.rbac import RbacRule
from trimtab.usage.source import SOURCES

ROOT = Path(__file__).parents[2]
USAGE_SOURCES = ROOT / "docs/how-to/usage-sources.md"
INSTALL = ROOT / "docs/how-to/install.md"
BASE = "deploy/operator/account.yaml"

Right = tuple[str, str, str]


def documented_sources() -> list[str]:
    """Return the first column of the table that helps to choose a source."""
    table = USAGE_SOURCES.read_text().partition("| source |")[2].partition("\n\n")[0]
    return re.findall(r"^\| `([\w-]+)`", table, re.MULTILINE)


def features_with_manifest() -> dict[str, str]:
    """Return the manifest with the additional rights of each feature that has one."""
    table = INSTALL.read_text().partition("| feature |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()[2:]]
    return {row[0]: found[1] for row in rows if (found := re.fullmatch(r"`(deploy/[\w/.-]+)`", row[-1]))}


def granted(*manifests: str) -> set[Right]:
    documents: list[dict[str, Any]] = [
        document for path in manifests for document in yaml.safe_load_all((ROOT / path).read_text())
    ]
    return {
        (group, resource, verb)
        for document in documents
        if document["kind"] in {"ClusterRole", "Role"}
        for rule in document["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def needed(rules: tuple[RbacRule, ...]) -> set[Right]:
    return {(rule.group, rule.resource, verb) for rule in rules for verb in rule.verbs}


def manifests_of_source(name: str) -> tuple[str, ...]:
    """Return the manifests that an installation with this source applies, by the documentation."""
    more = features_with_manifest().get(f"the usage source `{name}`")
    return (BASE, more) if more else (BASE,)


def test_documentation_lists_every_usage_source() -> None:
    assert sorted(documented_sources()) == sorted(SOURCES.names())


@pytest.mark.parametrize("name", SOURCES.names())
def test_documented_manifests_grant_the_rights_of_each_usage_source(name: str) -> None:
    rights = needed(SOURCES.load_type(name).rules)
    assert rights - granted(*manifests_of_source(name)) == set()


@pytest.mark.parametrize("name", SOURCES.names())
def test_documented_manifests_grant_no_right_that_the_base_has(name: str) -> None:
    _, *more = manifests_of_source(name)
    assert granted(*more) <= needed(SOURCES.load_type(name).rules) - granted(BASE)


def test_documentation_names_every_manifest_with_optional_rights() -> None:
    named = set(features_with_manifest().values())
    optional = set(yaml.safe_load((ROOT / "deploy/kustomization.yaml").read_text())["resources"])
    there = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "deploy/operator").glob("*.yaml")
        if str(path.relative_to(ROOT / "deploy")) not in optional
    }
    assert named == there
