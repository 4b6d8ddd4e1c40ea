"""The API server with our kinds installed, to hold what the models say against what a cluster does."""

import json
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from harness import process
from harness.cluster.cluster import Cluster
from trimtab.api import KINDS, Kind

ROOT = Path(__file__).parents[3]


class RefusedError(Exception):
    """The server said no; `fields` are the ones that it blames."""

    def __init__(self, status: dict[str, Any]) -> None:
        super().__init__(status["message"])
        causes = status.get("details", {}).get("causes", [])
        self.fields = {cause["field"] for cause in causes if cause.get("field", "<nil>") != "<nil>"}


class Kinds:
    """Objects of our kinds as the server would store them, by dry run."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def create(self, kind: type[Kind], spec: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        """The object as the server would keep it, with its defaults."""
        path = f"/apis/trimtab.io/v1alpha1/namespaces/default/{kind.names.plural}"
        if not kind.names.namespaced:
            path = path.replace("/namespaces/default", "")
        manifest = {
            "apiVersion": "trimtab.io/v1alpha1",
            "kind": kind.__name__,
            "metadata": {"name": "it"},
            **({} if spec is None else {"spec": spec}),
            **more,
        }
        try:
            return self._cluster.call("POST", f"{path}?dryRun=All&fieldValidation=Strict", manifest)
        except HTTPError as error:
            with error:
                raise RefusedError(json.load(error)) from None


@pytest.fixture(scope="session")
def kinds(cluster: Cluster) -> Kinds:
    """The server, once it knows our kinds."""
    cluster.kubectl("apply", "--server-side", "-f", str(ROOT / "deploy" / "crds"))
    process.wait_for(
        lambda: all(kind.names.plural in _discover_resources(cluster) for kind in KINDS), what="our kinds"
    )
    return Kinds(cluster)


def _discover_resources(cluster: Cluster) -> str:
    return cluster.kubectl("api-resources", "--api-group=trimtab.io", "--no-headers")
