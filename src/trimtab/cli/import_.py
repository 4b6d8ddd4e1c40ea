"""`trimtab import`: take over from another autoscaler, what it was told and what it has learned."""

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import yaml
from cyclopts import Parameter

from trimtab.atomic_write import write
from trimtab.cli import until_unread
from trimtab.cli._common.scan_options import plainly_refused
from trimtab.errors import TrimtabError
from trimtab.kube.auth import load_connection
from trimtab.kube.errors import NotFound
from trimtab.kube.kinds.vpas import Vpa, vpas
from trimtab.kube.kinds.workloads import Workload
from trimtab.kube.rest.capabilities import cluster_uid
from trimtab.kube.rest.client import Client, Object
from trimtab.kube.rest.resources import VPAS
from trimtab.kube.rest.retry import RetryRule
from trimtab.plural import counted
from trimtab.recommender.cohort_manager import state_key
from trimtab.recommender.vpa_checkpoints import read_checkpoints
from trimtab.scan.cluster_snapshot import look
from trimtab.scan.vpa_import import SIZING, Inherited, learned_of, policy_of
from trimtab.store import Store


def import_(
    what: Literal["vpa"],
    /,
    *,
    namespace: Annotated[tuple[str, ...], Parameter(name=["--namespace", "-n"])] = (),
    directory: Path | None = None,
    store: str | None = None,
    context: str | None = None,
    kubeconfig: str | None = None,
    output: Annotated[Literal["yaml", "json", "table"], Parameter(name=["--output", "-o"])] = "yaml",
) -> int:
    """Make OptimizationPolicies of VerticalPodAutoscalers, and take over what their recommender has learned.

    Look at the policies, then have them, and let the operator start from what VPA knew:

        trimtab import vpa --output table
        trimtab import vpa --store trimtab.db | kubectl apply -f -

    The cluster is only read. Each VPA becomes a policy of its name and namespace.

    Its mode, target, bounds, what it leaves alone and whether limits follow are kept; the strategy is vpa, which goes on where VPA's own
    numbers are. What a policy cannot say as the VPA does is told on stderr and beside the policy.

    Exits with 1 when a VPA cannot become a policy.

    Parameters
    ----------
    what
        What to import from: vpa, the Kubernetes VerticalPodAutoscaler.
    namespace
        Only the VPAs in this namespace; may be given several times.
    directory
        Write a file a policy into this folder instead of printing.
    store
        Put what VPA's checkpoints hold into this store, a file or a URL as the operator's configuration has it. Stop the operator meanwhile.
    context
        The kubeconfig context to use instead of the current one.
    kubeconfig
        The kubeconfig file to use instead of $KUBECONFIG or ~/.kube/config.
    output
        The policies as yaml or json, or a table of what becomes of each VPA.
    """
    assert what == "vpa"
    found = asyncio.run(_import(kubeconfig, context, namespace or None, store))
    with until_unread():
        if directory is not None:
            files = {directory / _file_name(each.vpa): _document(each) for each in found if each.policy}
            write(files)
            print("\n".join(map(str, files)))
        elif output == "json":
            print(json.dumps([each.policy for each in found if each.policy], indent=2))
        elif output == "yaml":
            print("---\n".join(_document(each) for each in found if each.policy), end="")
        else:
            _show(found)
    if output != "table":
        for each in found:
            for note in each.notes:
                print(f"{each.vpa.namespace}/{each.vpa.name}: {note}", file=sys.stderr)
    return int(any(each.policy is None for each in found))


async def _import(
    kubeconfig: str | None, context: str | None, namespaces: tuple[str, ...] | None, store: str | None
) -> list[Inherited]:
    connection = load_connection(kubeconfig=kubeconfig, context=context)
    async with Client(connection, retry=RetryRule(attempts=2)) as client, plainly_refused(connection):
        raw = await _read(client, namespaces)
        if not raw:
            raise TrimtabError(f"{connection.context}: there is no VerticalPodAutoscaler to import")
        specs = {_folded(each): each["spec"] for each in raw}
        picture = await look(client, namespaces=sorted({vpa.namespace for vpa in specs}))
        workloads = picture.workloads()
        owned = {each.key: picture.top_of(each).key for each in picture.owned()}
        if store is not None:
            print(await _keep(client, list(specs), workloads, store), file=sys.stderr)
    return [policy_of(vpa, spec, workloads, owned) for vpa, spec in specs.items()]


async def _read(client: Client, namespaces: tuple[str, ...] | None) -> list[Object]:
    try:
        return [
            each
            for namespace in namespaces or (None,)
            for each in await client.items(VPAS, namespace=namespace)
        ]
    except NotFound:
        raise TrimtabError(
            f"{client.connection.context}: this cluster knows no VerticalPodAutoscalers ({VPAS.api_version})"
        ) from None


def _folded(raw: Object) -> Vpa:
    shape = vpas()
    return shape.fold(msgspec.json.decode(msgspec.json.encode(raw), type=shape.wire))


async def _keep(client: Client, known: list[Vpa], workloads: Sequence[Workload], address: str) -> str:
    """Put what was learned where the operator looks for it when it starts; what to tell of that."""
    cohort = learned_of(known, await read_checkpoints(client), workloads)
    if cohort is None:
        return "nothing learned: there are no checkpoints of these VPAs' containers"
    key = state_key(await cluster_uid(client), SIZING, 0)
    async with Store.open(address) as store:
        if await store.states.load(key):
            raise TrimtabError(
                f"--store {address}: it already knows what strategy {SIZING.strategy} learned of this cluster; name another"
            )
        await store.states.save(key, cohort.state(), timestamp=time.time())
    return f"{address}: what VPA learned of {counted(len(cohort.fleet), 'container')}"


def _file_name(vpa: Vpa) -> str:
    """With a dot, which no namespace has: shop and api-web are not shop-api and web."""
    return f"{vpa.namespace}.{vpa.name}.yaml"


def _document(found: Inherited) -> str:
    notes = "".join(f"# {note}\n" for note in found.notes)
    return notes + yaml.safe_dump(found.policy, sort_keys=False)


def _show(found: list[Inherited]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("VPA", "TARGET", "MODE", "NOTES", box=None, pad_edge=False)
    for column in table.columns:
        column.overflow = "fold"  # or long names are cut off
    for each in found:
        table.add_row(
            f"{each.vpa.namespace}/{each.vpa.name}",
            f"{each.vpa.target.kind} {each.vpa.target.name}",
            each.policy["spec"]["mode"] if each.policy else "-",
            Text("; ".join(each.notes)),
        )
    Console().print(table)
