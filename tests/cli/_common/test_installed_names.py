"""The names of the operator's objects come from the configuration that its pods mount."""

from typing import Any, cast

import pytest

from trimtab.cli._common.installed_names import InstalledNames, read_installed_names
from trimtab.cli._common.operator_check import check_operator
from trimtab.kube.errors import NotFound, Status
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.resources import CONFIG_MAPS, LEASES, PODS, Resource

NOW = 1_700_000_000.0
POD = {
    "metadata": {"name": "operator-1"},
    "spec": {
        "volumes": [{"name": "data", "emptyDir": {}}, {"name": "config", "configMap": {"name": "settings"}}]
    },
    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
}


class FakeClient:
    """A cluster with one operator, whose ConfigMap has this text."""

    def __init__(self, text: str | None) -> None:
        self._text = text

    async def get(self, resource: Resource, name: str, *, namespace: str) -> dict[str, Any]:
        assert namespace == "home"
        if resource == CONFIG_MAPS and name == "settings" and self._text is not None:
            return {"data": {"config.yaml": self._text}}
        if resource == LEASES and name == "other":
            return {"spec": {"holderIdentity": "operator-1", "renewTime": "2023-11-14T22:13:20.000000Z"}}
        raise NotFound(Status(message=f"{name} not found", reason="NotFound", code=404))

    async def list_objects(self, resource: Resource, **_: str) -> list[dict[str, Any]]:
        return [POD] if resource == PODS else []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("leaderElection: {name: other}\nwebhook: {secret: own}", InstalledNames("other", "own")),
        ("leaderElection: {enabled: true}", InstalledNames()),
        ("leaderElection: [", InstalledNames()),
        ("- a list", InstalledNames()),
        (None, InstalledNames()),
    ],
)
async def test_installed_names_are_those_of_the_mounted_configuration(
    text: str | None, names: InstalledNames
) -> None:
    client = cast("Client", FakeClient(text))
    assert await read_installed_names(client, [POD], namespace="home") == names


async def test_doctor_looks_for_the_configured_lease() -> None:
    client = cast("Client", FakeClient("leaderElection: {name: other}"))
    leader = (await check_operator(client, "home", now=NOW))[1]
    assert (leader.state, leader.found) == ("ok", "operator-1")
