"""The CRDs, and the API server that enforces them: it fills in, accepts and refuses just as the models do."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from trimtab.api import KINDS, Kind
from trimtab.api.crd import build_crd, render_crd

ROOT = Path(__file__).parents[2]


def nodes(schema: dict[str, Any], path: str = "") -> list[tuple[str, dict[str, Any]]]:
    """Every node of a schema with its path."""
    found = [(path, schema)]
    for name, value in schema.get("properties", {}).items():
        found += nodes(value, f"{path}.{name}")
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), dict):
            found += nodes(schema[inner], f"{path}[]")
    return found


def schema_of(kind: type[Kind]) -> dict[str, Any]:
    schema: dict[str, Any] = build_crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


@pytest.mark.parametrize("kind", KINDS)
def test_crd_in_the_repository_matches_the_models(kind: type[Kind]) -> None:
    kept = ROOT / "deploy" / "crds" / f"{kind.names.plural}.yaml"
    assert kept.read_text() == render_crd(kind), "the models have changed: run `make crds`"
    assert yaml.safe_load(kept.read_text()) == build_crd(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_crd_describes_each_field(kind: type[Kind]) -> None:
    silent = [
        path
        for path, node in nodes(schema_of(kind))
        if not node.get("description")
        and path not in {".apiVersion", ".kind", ".metadata"}
        and not path.endswith("]")
    ]
    assert silent == []
