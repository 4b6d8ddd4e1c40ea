"""Whether the admission webhook that a cluster knows of answers, for `trimtab doctor`: one that does not refuses every policy."""

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
"""Where a policy is written to try, as a dry run: this namespace is always there."""

Object = Mapping[str, Any]


async def check_webhook(client: Client) -> CheckResult:
    """Find a registration that leads nowhere, and say what to do about it."""
    try:
        found = [
            each
            for resource in (VALIDATING, MUTATING)
            if (each := await _find_configuration(client, resource))
        ]
    except Forbidden:
        return CheckResult(
            CHECK, "ok", "not looked at: webhook configurations may not be read with these rights"
        )
    webhooks = [each for configuration in found for each in configuration.get("webhooks") or ()]
    if not webhooks:
        return CheckResult(CHECK, "ok", "none is registered: policies are checked by their CRD alone")
    refused = await _probe_refusal(client)
    why = await _unreachable_reason(client, webhooks)
    if not refused and not why:
        return CheckResult(CHECK, "ok", f"answers at {_format_endpoint(webhooks[0])}")
    is_closed = bool(refused) or any(each.get("failurePolicy", "Fail") == "Fail" for each in webhooks)
    effect = (
        "every policy that is written is refused"
        if is_closed
        else "policies come in without the operator's checks"
    )
    return CheckResult(
        CHECK,
        "problem" if is_closed else "warning",
        f"the webhook configurations {CONFIGURATION_NAME} lead to {_format_endpoint(webhooks[0])}: {why or refused}; {effect}",
        f"start the operator there, or where none is to run, remove them: {REMOVE_COMMAND}",
    )


async def _find_configuration(client: Client, resource: Resource) -> Object | None:
    try:
        return await client.get(resource, CONFIGURATION_NAME)
    except NotFound:
        return None


async def _probe_refusal(client: Client) -> str:
    """Why a policy is refused for want of an answer, seen by writing one as a dry run; empty where it is not so."""
    policy = {"apiVersion": API_VERSION, "kind": OptimizationPolicy.__name__}
    body = {**policy, "metadata": {"name": "trimtab-doctor"}, "spec": {}}
    try:
        await client.create(OPTIMIZATION_POLICIES, body, namespace=_NAMESPACE, dry_run=True)
    except ApiError as error:
        # What else is refused, as for want of rights or of the CRD, says nothing of the webhook.
        return error.message if "failed calling webhook" in error.message else ""
    return ""


async def _unreachable_reason(client: Client, webhooks: list[Object]) -> str:
    """Why nobody can answer at the Service that is registered; empty where somebody may, or it is an address."""
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
        return "there is no such Service"
    except Forbidden:
        return ""
    ready = [
        each
        for found in slices
        for each in found.get("endpoints") or ()
        if (each.get("conditions") or {}).get("ready", True)
    ]
    return "" if ready else "no pod that is ready stands behind it"


def _format_endpoint(webhook: Object) -> str:
    client: Object = webhook.get("clientConfig", {})
    service: Object = client.get("service") or {}
    return (
        f"Service {service['namespace']}/{service['name']}" if service else str(client.get("url", "nowhere"))
    )
