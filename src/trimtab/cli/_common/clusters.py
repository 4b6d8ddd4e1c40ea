"""Which contexts of a kubeconfig lead to one cluster: an administrator's and a viewer's, or one for each namespace.

A cluster is known by the uid of its namespace kube-system, and by the address of its server to those who may not read that.
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
    """The cluster that a context leads to, as far as that is known."""

    context: str
    server: str = ""
    """Empty where it could not be asked."""
    uid: str = ""
    """Empty where it may not be read."""
    sees_all: bool = False
    """Whether all pods that are asked for may be listed."""


async def probe_context(
    context: str, *, kubeconfig: str | None, namespaces: Sequence[str] | None
) -> ClusterContext:
    """Ask a cluster who it is, and whether this context may see all that a scan is about."""
    try:
        connection = load_connection(kubeconfig=kubeconfig, context=context)
        async with Client(connection, retry=RetryPolicy(attempts=1)) as client:
            try:
                uid = await get_cluster_uid(client)
            except Forbidden:
                uid = ""
            sees_all = await _can_see_all(client, namespaces)
    except TrimtabError:
        return ClusterContext(context)  # the scan meets it again, and says what is the matter
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
        # Of one that could not be asked nobody knows whose it is: it stands for itself.
        identity = (
            ("uid", uid) if uid else ("server", each.server) if each.server else ("context", each.context)
        )
        groups.setdefault(identity, []).append(each)
    return [sorted(group, key=lambda each: not each.sees_all) for group in groups.values()]


def exclude_known(scan: ScanResult, earlier: Iterable[ScanResult]) -> ScanResult:
    """Leave out what earlier surveys of the same cluster have already."""
    known: set[WorkloadKey] = set()
    for each in earlier:
        known |= {found.key for found in each.workloads} | {found.key for found in each.skipped}
    return replace(
        scan,
        workloads=tuple(found for found in scan.workloads if found.key not in known),
        skipped=tuple(found for found in scan.skipped if found.key not in known),
    )
