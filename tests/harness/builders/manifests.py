"""Read the manifests in deploy/ as the API server would get them."""

from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[3] / "deploy"


def documents(name: str) -> list[dict[str, Any]]:
    """Return the documents of one of the operator's manifests."""
    return [*yaml.safe_load_all((DEPLOY / "operator" / name).read_text())]


def find_document(name: str, kind: str) -> dict[str, Any]:
    """Return the one document of a kind."""
    (found,) = [document for document in documents(name) if document["kind"] == kind]
    return found
