"""The part of the client that reads and writes single objects; a simulated server implements it too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from trimtab.kube.rest.client import FIELD_MANAGER, Object, PatchType
from trimtab.kube.rest.resources import Resource


class ObjectClient(Protocol):
    """Reads and writes objects of any resource as JSON; the methods are those of `Client`."""

    async def get(
        self, resource: Resource, name: str, *, namespace: str | None = ..., subresource: str | None = ...
    ) -> Object: ...

    async def list_objects(
        self, resource: Resource, *, namespace: str | None = None, labels: str = "", fields: str = ""
    ) -> list[Object]: ...

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Any,
        *,
        type: PatchType,  # noqa: A002 - the Kubernetes term
        namespace: str | None = None,
        subresource: str | None = None,
        force: bool = False,
        dry_run: bool = False,
        manager: str = FIELD_MANAGER,
    ) -> Object: ...

    async def apply(
        self,
        resource: Resource,
        body: Mapping[str, Any],
        *,
        subresource: str | None = None,
        force: bool = False,
        dry_run: bool = False,
        manager: str = FIELD_MANAGER,
    ) -> Object: ...
