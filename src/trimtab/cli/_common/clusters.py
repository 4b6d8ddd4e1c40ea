"""Group the contexts of a kubeconfig by cluster: several users or namespaces may share one.

The uid of the namespace kube-system identifies a cluster, or the address of its server if the uid may not be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from trimtab.errors import TrimtabError
from trimtab.kube.auth import load_connection
from trimtab.kube.errors import Forbidden
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.capabilities import get_cluster_uid
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.resources import PODS
from trimtab.kube.rest.retry import RetryPolicy
from trimtab.scan.model import ScanResult


@dataclass(frozen=True, slots=True)
class ClusterContext:
    """The cluster of a context, as far as it is known."""

    context: str
    server: str = ""
    """The address of the server; empty if it did not respond."""
    uid: str = ""
    """The uid of the cluster; empty if it may not be read."""
    sees_all: bool = False
    """True if all selected pods may be listed."""


async def probe_context(
    context: str, *, kubeconfig: str | None, namespaces: Sequence[str] | None
) -> ClusterContext:
    """Identify the cluster of a context, and check whether the context may list all selected pods."""
    try:
        connection = load_connection(kubeconfig=kubeconfig, context=context)
        async with Client(connection, retry=RetryPolicy(attempts=1)) as client:
            try:
                uid = await get_cluster_uid(client)
            except Forbidden:
                uid = ""
            sees_all = await _can_see_all(client, namespaces)
    except TrimtabError:
        return ClusterContext(context)  # the scan reports the same error
    return ClusterContext(context, connection.server, uid, sees_all)


async def _can_see_all(client: Client, namespaces: Sequence[str] | None) -> bool:
    try:
        for namespace in namespaces or (None,):
            await anext(client.list_pages(PODS, namespace=namespace, limit=1))
    except Forbidden:
        return False
    return True


def group_by_cluster(found: Sequence[ClusterContext]) -> list[list[ClusterContext]]:
    """Group contexts by cluster, in the order given; in each group those that see all come first."""
    uids = {each.server: each.uid for each in found if each.uid}
    groups: dict[tuple[str, str], list[ClusterContext]] = {}
    for each in found:
        uid = each.uid or uids.get(each.server, "")
        # A context whose cluster is unknown forms its own group.
        identity = (
            ("uid", uid) if uid else ("server", each.server) if each.server else ("context", each.context)
        )
        groups.setdefault(identity, []).append(each)
    return [sorted(group, key=lambda each: not each.sees_all) for group in groups.values()]


def exclude_known(scan: ScanResult, earlier: Iterable[ScanResult]) -> ScanResult:
    """Remove the workloads that earlier scans of the same cluster already have."""
    known: set[WorkloadKey] = set()
    for each in earlier:
        known |= {found.key for found in each.workloads} | {found.key for found in each.skipped}
    return replace(
        scan,
        workloads=tuple(found for found in scan.workloads if found.key not in known),
        skipped=tuple(found for found in scan.skipped if found.key not in known),
    )
