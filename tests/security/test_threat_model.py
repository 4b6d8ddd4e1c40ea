"""docs/threat-model.md names every right that the manifests grant, and no other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "threat-model.md").read_text()
DEPLOY = ROOT / "deploy"
SECTIONS = {
    "## If the operator is taken over": ("operator/account.yaml",),
    "## If the dashboard is on": ("operator/dashboard.yaml",),
    "## If an agent is taken over": ("agent/account.yaml",),
}


class Right(NamedTuple):
    """A verb on a resource, as `kubectl auth can-i` names it."""

    resource: str
    verb: str


def granted(*files: str) -> set[Right]:
    found = set()
    for file in files:
        for document in yaml.safe_load_all((DEPLOY / file).read_text()):
            for rule in document.get("rules", ()):
                assert "nonResourceURLs" not in rule, "describe it on the page, and count it here"
                found |= {
                    Right(f"{resource}.{group}" if group else resource, verb)
                    for group in rule["apiGroups"]
                    for resource in rule["resources"]
                    for verb in rule["verbs"]
                }
    return found


def described(section: str) -> set[Right]:
    text = PAGE[PAGE.index(section) + len(section) :].partition("\n## ")[0]
    found = set()
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != 4 or cells[0] in {"resource", "---"}:
            continue
        resources, verbs = (re.findall(r"`([^`]+)`", cell) for cell in cells[:2])
        assert cells[2], f"what {line} makes possible is missing"
        assert cells[3], f"what limits {line} is missing"
        found |= {Right(resource, verb) for resource in resources for verb in verbs}
    return found


@pytest.mark.parametrize("section", SECTIONS)
def test_threat_model_describes_every_right_of_the_manifests(section: str) -> None:
    assert described(section) == granted(*SECTIONS[section])


def test_threat_model_covers_every_manifest_with_rights() -> None:
    files = {
        str(path.relative_to(DEPLOY))
        for path in DEPLOY.rglob("*.yaml")
        if re.search(r"^kind: (Cluster)?Role$", path.read_text(), re.MULTILINE)
    }
    assert files == {file for each in SECTIONS.values() for file in each}


def test_threat_model_names_policies_that_exist() -> None:
    existing = {
        document["metadata"]["name"]
        for path in DEPLOY.rglob("*.yaml")
        for document in yaml.safe_load_all(path.read_text())
        if isinstance(document, dict) and document.get("kind") == "ValidatingAdmissionPolicy"
    }
    assert set(re.findall(r"`(trimtab-(?:operator|agent)-[\w-]+)`", PAGE)) == existing
