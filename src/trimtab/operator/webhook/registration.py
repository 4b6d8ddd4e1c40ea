"""Register the webhook with the API server: two configurations, of which the manifests in deploy/ are copies.

They are applied with Trimtab's field manager, including what the manifests leave out: the CA bundle and the failure
policy. Therefore a tool that applies the manifests again does not revert them. The webhook for pods is in no manifest: it
exists while `webhook.pods` is true.
"""

from __future__ import annotations

import base64
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from yarl import URL

from trimtab.api import GROUP, VERSION, OptimizationPolicy
from trimtab.kube.errors import NotFound
from trimtab.kube.rest.client import Client, Object, PatchType
from trimtab.kube.rest.resources import Resource
from trimtab.operator.config.model import FailurePolicy, WebhookSettings
from trimtab.operator.webhook.certificates import add_authority
from trimtab.operator.webhook.server import MUTATE_PATH, PODS_PATH, VALIDATE_PATH

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
CONFIGURATION_NAME: Final = "trimtab"
REMOVE_COMMAND: Final = f"kubectl delete validatingwebhookconfiguration {CONFIGURATION_NAME} && kubectl delete mutatingwebhookconfiguration {CONFIGURATION_NAME}"
"""The command that removes the registration by hand."""
SERVICE_PORT: Final = 443
PATHS: Final = {VALIDATING: VALIDATE_PATH, MUTATING: MUTATE_PATH}
_POLICY_TIMEOUT_SECONDS = 10
_POD_TIMEOUT_SECONDS = 2
_HAS_CONTROLLER: Final = (
    "has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists("
    "owner, has(owner.controller) && owner.controller && owner.kind != 'Node')"
)


def build_configuration(resource: Resource, *webhooks: Object) -> Object:
    """Return one of the two configurations, as in the manifests."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": CONFIGURATION_NAME},
        "webhooks": list(webhooks),
    }


def build_policy_webhook(*, client: Object, **more: Any) -> Object:
    """Return the webhook for policies; `client` says how the API server reaches it."""
    return {
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
        "timeoutSeconds": _POLICY_TIMEOUT_SECONDS,
        **more,
    }


def build_pod_webhook(*, client: Object, operator_namespace: str) -> Object:
    """Return the webhook for new pods, except the operator's own, those of kube-system, and those without a controller.

    Its failure policy is Ignore: pods are created even if it fails.
    """
    name = "kubernetes.io/metadata.name"
    return {
        "name": f"pods.{GROUP}",
        "clientConfig": client,
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "resources": ["pods"],
                "operations": ["CREATE"],
                "scope": "Namespaced",
            }
        ],
        "namespaceSelector": {
            "matchExpressions": [
                {"key": name, "operator": "NotIn", "values": ["kube-system", operator_namespace]}
            ]
        },
        "matchConditions": [{"name": "has-a-controller", "expression": _HAS_CONTROLLER}],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": _POD_TIMEOUT_SECONDS,
        "failurePolicy": str(FailurePolicy.IGNORE),
        # A container that another webhook injects later may have a size in effect, too.
        "reinvocationPolicy": "IfNeeded",
    }


def build_service_reference(path: str, *, service: str, namespace: str) -> Object:
    """Return the reference by which the API server reaches the webhook in the cluster."""
    found = {"name": service, "namespace": namespace, "path": path, "port": SERVICE_PORT}
    return {"service": found}


@dataclass(frozen=True)
class WebhookRegistration:
    """Keeps the two configurations current."""

    client: Client
    settings: WebhookSettings
    namespace: str

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which the API server calls the webhook, which the certificate must cover."""
        if self.settings.url:
            return (URL(self.settings.url).host or "",)
        return (f"{self.settings.service}.{self.namespace}.svc",)

    async def publish(self, authority: bytes, *, now: datetime) -> bool:
        """Add this CA to those that the API server trusts; return True if it trusted it already.

        With certificate files, each replica sees a renewal at its own time and serves the old certificate until then.
        """
        was_so = []
        for resource in PATHS:
            found = await self._get(resource)
            bundle = add_authority(authority, _read_ca_bundle(found), now=now)
            trust = {"caBundle": base64.b64encode(bundle).decode()}
            was_so.append(await self._apply(resource, found, self.settings.failure_policy, trust))
        return all(was_so)

    async def unregister(self) -> None:
        """Delete the configurations that point to this process, so that the API server stops calling it.

        Those that point elsewhere by now, such as to the operator in the cluster, stay.
        """
        for resource, path in PATHS.items():
            found = await self._get(resource)
            ours = self._client_config(path)
            if found and any(_contains(each.get("clientConfig"), ours) for each in found.get("webhooks", ())):
                await self.client.delete(resource, CONFIGURATION_NAME, uid=found["metadata"]["uid"])

    async def disable(self) -> None:
        """Make the API server admit everything, if a webhook is registered that is now disabled."""
        for resource in PATHS:
            if found := await self._get(resource):
                await self._apply(resource, found, FailurePolicy.IGNORE, {})

    async def _apply(
        self, resource: Resource, found: Object, failure_policy: FailurePolicy, trust: Object
    ) -> bool:
        reached = self._client_config(PATHS[resource]) | trust
        webhooks = [build_policy_webhook(client=reached, failurePolicy=str(failure_policy))]
        if resource == MUTATING and self.settings.enabled and self.settings.pods:
            webhooks.append(
                build_pod_webhook(
                    client=self._client_config(PODS_PATH) | trust, operator_namespace=self.namespace
                )
            )
        wanted = build_configuration(resource, *webhooks)
        if _contains(found, wanted):
            return True
        if replacement := _replace_client_configs(found, wanted):
            await self.client.patch(resource, CONFIGURATION_NAME, replacement, type=PatchType.JSON)
        await self.client.apply(resource, wanted, force=True)
        return False

    def _client_config(self, path: str) -> Object:
        if self.settings.url:
            return {"url": self.settings.url + path}
        return build_service_reference(path, service=self.settings.service, namespace=self.namespace)

    async def _get(self, resource: Resource) -> Object:
        try:
            return await self.client.get(resource, CONFIGURATION_NAME)
        except NotFound:
            return {}


def _replace_client_configs(found: Object, wanted: Object) -> list[Object]:
    """Build the JSON patch for webhooks that are reached in another way so far: by the Service instead of a URL."""
    # Applied fields are added to those of other managers, such as Helm's `service`. The API server rejects a webhook
    # that has both, and then nobody could validate policies.
    ways = {"url", "service"}
    reached = {each["name"]: each["clientConfig"] for each in wanted["webhooks"]}
    patch: list[Object] = []
    for place, each in enumerate(found.get("webhooks") or ()):
        name, client = each.get("name"), reached.get(each.get("name"))
        if client and ways & each["clientConfig"].keys() - client.keys():
            patch += [
                {"op": "test", "path": f"/webhooks/{place}/name", "value": name},
                {"op": "replace", "path": f"/webhooks/{place}/clientConfig", "value": client},
            ]
    return patch


def _read_ca_bundle(found: Object) -> bytes:
    """Return the CAs that the API server trusts for this webhook, as PEM; empty if there is none."""
    for webhook in found.get("webhooks") or ():
        with suppress(ValueError):
            return base64.b64decode(webhook.get("clientConfig", {}).get("caBundle") or "", validate=True)
    return b""


def _contains(found: Any, wanted: Any) -> bool:
    """Return True if everything wanted is there; the API server adds fields of its own."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            _contains(found.get(name), value) for name, value in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(_contains, found, wanted))
    return bool(found == wanted)
