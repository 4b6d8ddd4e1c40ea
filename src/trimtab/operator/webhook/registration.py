"""How the API server knows of the webhook: two configurations, of which the manifests in deploy/ are copies.

All of it is applied under our own name as field manager, with what the manifests leave open: whom to trust, and what
to do when nobody answers. So a tool that applies the manifests again takes nothing of that back.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, Final

from yarl import URL

from trimtab.api import GROUP, VERSION, OptimizationPolicy
from trimtab.kube.client import Client, Object
from trimtab.kube.errors import NotFound
from trimtab.kube.resources import Resource
from trimtab.operator.config import FailurePolicy, Webhook
from trimtab.operator.webhook.server import MUTATE, VALIDATE

VALIDATING = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
MUTATING = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
NAME: Final = "trimtab"
SERVICE_PORT: Final = 443
_PATHS = {VALIDATING: VALIDATE, MUTATING: MUTATE}
_PATIENCE_SECONDS = 10


def configuration(resource: Resource, *, client: Object, **more: Any) -> Object:
    """One of the two, as it is in the manifests; `client` says how the webhook is reached."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": NAME},
        "webhooks": [
            {
                "name": f"{OptimizationPolicy.names.plural}.{GROUP}",
                "clientConfig": client,
                "rules": [
                    {
                        "apiGroups": [GROUP],
                        "apiVersions": [VERSION],
                        "resources": [OptimizationPolicy.names.plural],
                        "operations": ["CREATE", "UPDATE"],
                        "scope": "Namespaced",
                    }
                ],
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "timeoutSeconds": _PATIENCE_SECONDS,
                **more,
            }
        ],
    }


def by_service(resource: Resource, *, service: str, namespace: str) -> Object:
    """How the API server reaches the webhook in the cluster."""
    found = {"name": service, "namespace": namespace, "path": _PATHS[resource], "port": SERVICE_PORT}
    return {"service": found}


@dataclass(frozen=True)
class Registration:
    """Keeps the two configurations as they should be."""

    client: Client
    settings: Webhook
    namespace: str

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which the API server calls us, which our certificate must be for."""
        if self.settings.url:
            return (URL(self.settings.url).host or "",)
        return (f"{self.settings.service}.{self.namespace}.svc",)

    async def publish(self, authority: bytes) -> bool:
        """Have the API server trust this authority; whether it did so already."""
        bundle = {"caBundle": base64.b64encode(authority).decode()}
        was_so = [
            await self._keep(resource, await self._found(resource), self.settings.failure_policy, bundle)
            for resource in _PATHS
        ]
        return all(was_so)

    async def stand_down(self) -> None:
        """Let everything in, where the API server was told of a webhook that is switched off."""
        for resource in _PATHS:
            if found := await self._found(resource):
                await self._keep(resource, found, FailurePolicy.IGNORE, {})

    async def _keep(
        self, resource: Resource, found: Object, failure_policy: FailurePolicy, trust: Object
    ) -> bool:
        reached = (
            {"url": self.settings.url + _PATHS[resource]}
            if self.settings.url
            else by_service(resource, service=self.settings.service, namespace=self.namespace)
        )
        wanted = configuration(resource, client=reached | trust, failurePolicy=str(failure_policy))
        if _holds(found, wanted):
            return True
        await self.client.apply(resource, wanted, force=True)
        return False

    async def _found(self, resource: Resource) -> Object:
        try:
            return await self.client.get(resource, NAME)
        except NotFound:
            return {}


def _holds(found: Any, wanted: Any) -> bool:
    """Whether all that is wanted is there; the server adds fields of its own."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            _holds(found.get(name), value) for name, value in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(_holds, found, wanted))
    return bool(found == wanted)
