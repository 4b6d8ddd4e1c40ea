"""`trimtab cleanup`: what an operator that was uninstalled left behind."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, NamedTuple

from cyclopts import Parameter

from trimtab.actuation.change_annotations import (
    APPLIED_ANNOTATION,
    CHANGE_ANNOTATION,
    RECOMMENDATION_ANNOTATION,
    REVERTED_ANNOTATION,
)
from trimtab.actuation.hold import HOLD_ANNOTATION
from trimtab.actuation.pod_options import OPTIONS_ANNOTATION
from trimtab.api import GROUP, KINDS
from trimtab.cli._common.installed_names import InstalledNames, read_installed_names
from trimtab.cli._common.scan_options import friendly_errors
from trimtab.errors import TrimtabError
from trimtab.kube.auth import load_connection
from trimtab.kube.cache.list_pages import list_records
from trimtab.kube.errors import Forbidden, NotFound
from trimtab.kube.kinds.emergency_stop import STOP_NAME
from trimtab.kube.kinds.metadata import Metadata, metadata_projection
from trimtab.kube.rest.client import Client, PatchType
from trimtab.kube.rest.rbac import SYSTEM_NAMESPACE
from trimtab.kube.rest.resources import (
    CONFIG_MAPS,
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    LEASES,
    NODE_METRICS,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    Resource,
)
from trimtab.operator.webhook.registration import CONFIGURATION_NAME, MUTATING, VALIDATING
from trimtab.plural import pluralize

SECRETS = Resource("", "v1", "secrets", "Secret")
WORKLOADS = (DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS, REPLICA_SETS, CRON_JOBS, JOBS, PODS)
OWN_ANNOTATIONS = (CHANGE_ANNOTATION, APPLIED_ANNOTATION, REVERTED_ANNOTATION, RECOMMENDATION_ANNOTATION)
"""The annotations in which the operator keeps its state; all others of the group are written by people."""
PROCESSES = "app.kubernetes.io/name=trimtab,app.kubernetes.io/component in (operator,agent)"


class Leftover(NamedTuple):
    """An object to delete, or the annotations of one to remove."""

    resource: Resource
    namespace: str
    name: str
    annotations: tuple[str, ...] = ()

    def __str__(self) -> str:
        name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        if self.annotations:
            return f"{self.resource.kind} {name}: annotations {', '.join(self.annotations)}"
        return f"{self.resource.kind} {name}"


class Found(NamedTuple):
    leftovers: list[Leftover]
    resized: list[str]
    """The workloads whose sizes may differ from their templates."""
    kept: list[str]
    """The objects that stay, because people wrote them."""


def cleanup(
    *,
    dry_run: bool = False,
    force: bool = False,
    namespace: Annotated[str, Parameter(name=["--namespace", "-n"])] = SYSTEM_NAMESPACE,
    lease: str | None = None,
    webhook_secret: str | None = None,
    context: str | None = None,
    kubeconfig: str | None = None,
) -> int:
    """Remove what an uninstalled Trimtab left in a cluster: annotations, webhooks, its lease, Secret and NodeMetrics.

    What is left after `helm uninstall`? Remove it:

        trimtab cleanup --dry-run
        trimtab cleanup

    Requests and limits of pods and templates are not changed. Policies, Intents and the kinds stay. Exits with 1 if an operator or
    agent still runs, which would write everything again.

    Parameters
    ----------
    dry_run
        Only list what would be removed.
    force
        Remove it although operator or agents still run.
    namespace
        The namespace in which Trimtab was installed.
    lease
        The Lease, if the configuration named another one (leaderElection.name).
    webhook_secret
        The Secret of the webhook, if the configuration named another one (webhook.secret).
    context
        The kubeconfig context to use instead of the current one.
    kubeconfig
        The kubeconfig file to use instead of $KUBECONFIG or ~/.kube/config.
    """
    given = {"lease": lease, "webhook_secret": webhook_secret}
    names = {field: name for field, name in given.items() if name}
    return asyncio.run(_cleanup(namespace, names, context, kubeconfig, dry_run=dry_run, force=force))


async def _cleanup(
    namespace: str,
    given: Mapping[str, str],
    context: str | None,
    kubeconfig: str | None,
    *,
    dry_run: bool,
    force: bool,
) -> int:
    connection = load_connection(kubeconfig=kubeconfig, context=context)
    async with Client(connection, timeout=30) as client, friendly_errors(connection):
        pods = await client.list_objects(PODS, namespace=namespace, labels=PROCESSES)
        running = [pod["metadata"]["name"] for pod in pods]
        if running and not force and not dry_run:
            print(
                f"{connection.context}: {', '.join(sorted(running)[:6])} still run in namespace {namespace} and would write "
                "everything again; uninstall Trimtab first (helm uninstall, or kubectl delete -k deploy), or give --force"
            )
            return 1
        # Once the operator is uninstalled, its configuration is gone, too: then only the user knows other names.
        names = await read_installed_names(client, pods, namespace=namespace)
        found = await _find(client, namespace, names._replace(**given))
        for each in found.leftovers:
            if not dry_run:
                await _remove(client, each)
            print(f"{'would remove' if dry_run else 'removed'} {each}")
    _print_rest(found)
    return 0


async def _find(client: Client, namespace: str, names: InstalledNames) -> Found:
    found = Found([], [], [])
    for resource in WORKLOADS:
        async for each in _list(client, resource):
            annotations = dict(each.annotations)
            name = f"{resource.kind} {each.namespace}/{each.name}"
            if own := tuple(key for key in OWN_ANNOTATIONS if key in annotations):
                found.leftovers.append(Leftover(resource, each.namespace, each.name, own))
            if APPLIED_ANNOTATION in annotations:
                found.resized.append(name)
            found.kept.extend(
                f"{name}: annotation {key}"
                for key in (HOLD_ANNOTATION, OPTIONS_ANNOTATION)
                if key in annotations
            )
    for resource in (VALIDATING, MUTATING):
        found.leftovers.extend(await _get(client, resource, CONFIGURATION_NAME))
    for resource, name in ((LEASES, names.lease), (SECRETS, names.webhook_secret), (CONFIG_MAPS, STOP_NAME)):
        found.leftovers.extend(await _get(client, resource, name, namespace=namespace))
    found.leftovers.extend(
        [Leftover(NODE_METRICS, "", each.name) async for each in _list(client, NODE_METRICS)]
    )
    for kind in KINDS:
        if kind.names.plural == NODE_METRICS.plural:
            continue
        resource = Resource(GROUP, "v1alpha1", kind.names.plural, kind.__name__, kind.names.namespaced)
        found.kept.extend(
            [
                f"{resource.kind} {each.namespace + '/' if each.namespace else ''}{each.name}"
                async for each in _list(client, resource)
            ]
        )
    return found


async def _list(
    client: Client, resource: Resource, *, namespace: str | None = None, labels: str = ""
) -> AsyncIterator[Metadata]:
    """List the metadata of a kind; nothing if the kind is not installed."""
    try:
        async for each in list_records(
            client, resource, metadata_projection(), namespace=namespace, labels=labels
        ):
            yield each
    except NotFound:
        return


async def _get(client: Client, resource: Resource, name: str, *, namespace: str = "") -> list[Leftover]:
    try:
        await client.get(resource, name, namespace=namespace or None)
    except NotFound:
        return []
    return [Leftover(resource, namespace, name)]


async def _remove(client: Client, each: Leftover) -> None:
    try:
        if each.annotations:
            body = {"metadata": {"annotations": dict.fromkeys(each.annotations)}}
            namespace = each.namespace or None
            await client.patch(each.resource, each.name, body, type=PatchType.MERGE, namespace=namespace)
        else:
            await client.delete(each.resource, each.name, namespace=each.namespace or None)
    except NotFound:
        return  # somebody else removed it
    except Forbidden as error:
        raise TrimtabError(f"{each}: {error}; run `trimtab cleanup` again with that permission") from None


def _print_rest(found: Found) -> None:
    if not found.leftovers:
        print("nothing is left to remove")
    if found.resized:
        print(
            f"\n{pluralize(len(found.resized), 'workload')} may run with other sizes than their templates have. Their pods keep "
            "these sizes until the next rollout, and then get the template's. `trimtab patch` writes recommended sizes into your "
            "files:"
        )
        print("\n".join(f"  {name}" for name in found.resized))
    print("\nStays, because people wrote it or it holds your data:")
    kinds = [f"the kinds of {GROUP} (kubectl delete crd removes them with all their objects)"]
    for name in (*kinds, *found.kept, "the history and the learned state in store.url of the operator"):
        print(f"  {name}")
