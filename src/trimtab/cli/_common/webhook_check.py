"""Check for `trimtab doctor` that the registered admission webhook responds; otherwise every policy is rejected."""

from collections.abc import Mapping
from typing import Any

from trimtab.api import API_VERSION, OptimizationPolicy
from trimtab.cli._common.doctor_checks import CheckResult
from trimtab.kube.errors import ApiError, Forbidden, NotFound
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.resources import OPTIMIZATION_POLICIES, SERVICES, Resource
from trimtab.operator.webhook.registration import CONFIGURATION_NAME, MUTATING, REMOVE_COMMAND, VALIDATING

CHECK = "webhook"
ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
_NAMESPACE = "default"
"""The namespace of the dry-run policy; it always exists."""

Object = Mapping[str, Any]


async def check_webhook(client: Client) -> CheckResult:
    """Find a webhook registration without a working endpoint."""
    try:
        found = [
            each
            for resource in (VALIDATING, MUTATING)
            if (each := await _find_configuration(client, resource))
        ]
    except Forbidden:
        return CheckResult(CHECK, "ok", "not checked: you are not allowed to read webhook configurations")
    webhooks = [each for configuration in found for each in configuration.get("webhooks") or ()]
    if not webhooks:
        return CheckResult(CHECK, "ok", "no webhook is registered: only the CRD validates policies")
    refused = await _probe_refusal(client)
    why = await _unreachable_reason(client, webhooks)
    if not refused and not why:
        return CheckResult(CHECK, "ok", f"answers at {_format_endpoint(webhooks[0])}")
    is_closed = bool(refused) or any(each.get("failurePolicy", "Fail") == "Fail" for each in webhooks)
    effect = (
        "the API server rejects every policy"
        if is_closed
        else "policies are accepted without the operator's validation"
    )
    return CheckResult(
        CHECK,
        "problem" if is_closed else "warning",
        f"the webhook configurations {CONFIGURATION_NAME} lead to {_format_endpoint(webhooks[0])}: {why or refused}; {effect}",
        f"start the operator, or remove the configurations: {REMOVE_COMMAND}",
    )


async def _find_configuration(client: Client, resource: Resource) -> Object | None:
    try:
        return await client.get(resource, CONFIGURATION_NAME)
    except NotFound:
        return None


async def _probe_refusal(client: Client) -> str:
    """Return the error of a webhook that fails a dry-run policy; empty if it does not."""
    policy = {"apiVersion": API_VERSION, "kind": OptimizationPolicy.__name__}
    body = {**policy, "metadata": {"name": "trimtab-doctor"}, "spec": {}}
    try:
        await client.create(OPTIMIZATION_POLICIES, body, namespace=_NAMESPACE, dry_run=True)
    except ApiError as error:
        # Other errors, such as missing rights or a missing CRD, say nothing about the webhook.
        return error.message if "failed calling webhook" in error.message else ""
    return ""


async def _unreachable_reason(client: Client, webhooks: list[Object]) -> str:
    """Return why the registered Service cannot respond; empty if it may, or if a URL is registered."""
    service: Object = webhooks[0].get("clientConfig", {}).get("service") or {}
    if not service:
        return ""
    namespace, name = service["namespace"], service["name"]
    try:
        await client.get(SERVICES, name, namespace=namespace)
        slices = await client.list_objects(
            ENDPOINT_SLICES, namespace=namespace, labels=f"kubernetes.io/service-name={name}"
        )
    except NotFound:
        return "the Service does not exist"
    except Forbidden:
        return ""
    ready = [
        each
        for found in slices
        for each in found.get("endpoints") or ()
        if (each.get("conditions") or {}).get("ready", True)
    ]
    return "" if ready else "the Service has no ready pods"


def _format_endpoint(webhook: Object) -> str:
    client: Object = webhook.get("clientConfig", {})
    service: Object = client.get("service") or {}
    return (
        f"Service {service['namespace']}/{service['name']}" if service else str(client.get("url", "nowhere"))
    )
