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
from trimtab.kube.rest.capabilities import cluster_uid
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.resources import PODS
from trimtab.kube.rest.retry import RetryRule
from trimtab.scan.model import Survey


@dataclass(frozen=True, slots=True)
class Reached:
    """The cluster that a context leads to, as far as that is known."""

    context: str
    server: str = ""
    """Empty where it could not be asked."""
    uid: str = ""
    """Empty where it may not be read."""
    sees_all: bool = False
    """Whether all pods that are asked for may be listed."""


async def reach(context: str, *, kubeconfig: str | None, namespaces: Sequence[str] | None) -> Reached:
    """Ask a cluster who it is, and whether this context may see all that a scan is about."""
    try:
        connection = load_connection(kubeconfig=kubeconfig, context=context)
        async with Client(connection, retry=RetryRule(attempts=1)) as client:
            try:
                uid = await cluster_uid(client)
            except Forbidden:
                uid = ""
            sees_all = await _sees_all(client, namespaces)
    except TrimtabError:
        return Reached(context)  # the scan meets it again, and says what is the matter
    return Reached(context, connection.server, uid, sees_all)


async def _sees_all(client: Client, namespaces: Sequence[str] | None) -> bool:
    try:
        for namespace in namespaces or (None,):
            await anext(client.pages(PODS, namespace=namespace, limit=1))
    except Forbidden:
        return False
    return True


def by_cluster(found: Sequence[Reached]) -> list[list[Reached]]:
    """Group contexts by cluster, in the order given; in each group those that see all come first."""
    uids = {each.server: each.uid for each in found if each.uid}
    groups: dict[tuple[str, str], list[Reached]] = {}
    for each in found:
        uid = each.uid or uids.get(each.server, "")
        # Of one that could not be asked nobody knows whose it is: it stands for itself.
        identity = (
            ("uid", uid) if uid else ("server", each.server) if each.server else ("context", each.context)
        )
        groups.setdefault(identity, []).append(each)
    return [sorted(group, key=lambda each: not each.sees_all) for group in groups.values()]


def without(survey: Survey, earlier: Iterable[Survey]) -> Survey:
    """Leave out what earlier surveys of the same cluster have already."""
    known: set[WorkloadKey] = set()
    for each in earlier:
        known |= {found.key for found in each.workloads} | {found.key for found in each.skipped}
    return replace(
        survey,
        workloads=tuple(found for found in survey.workloads if found.key not in known),
        skipped=tuple(found for found in survey.skipped if found.key not in known),
    )
