"""`trimtab import`: take over the settings and the learned state of another autoscaler."""

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

from trimtab.atomic_write import check_file_name, write_atomically
from trimtab.cli import ignore_closed_pipe
from trimtab.cli._common.scan_options import friendly_errors
from trimtab.errors import TrimtabError
from trimtab.kube.auth import load_connection
from trimtab.kube.errors import NotFound
from trimtab.kube.kinds.vpas import VerticalPodAutoscaler, vpa_projection
from trimtab.kube.kinds.workloads import Workload
from trimtab.kube.rest.capabilities import get_cluster_uid
from trimtab.kube.rest.client import Client, Object
from trimtab.kube.rest.resources import VPAS
from trimtab.kube.rest.retry import RetryPolicy
from trimtab.plural import pluralize
from trimtab.printable import escape_invisible
from trimtab.recommender.cohort_store import state_key
from trimtab.recommender.vpa_checkpoints import read_checkpoints
from trimtab.scan.cluster_snapshot import take_snapshot
from trimtab.scan.krr_import import convert_command
from trimtab.scan.vpa_import import STRATEGY_SPEC, ImportedPolicy, build_vpa_cohort, convert_vpa
from trimtab.store import Store


def import_(
    what: Literal["vpa", "krr"],
    /,
    *,
    namespace: Annotated[tuple[str, ...], Parameter(name=["--namespace", "-n"])] = (),
    command: str = "",
    directory: Path | None = None,
    store: str | None = None,
    context: str | None = None,
    kubeconfig: str | None = None,
    output: Annotated[Literal["yaml", "json", "table"], Parameter(name=["--output", "-o"])] = "yaml",
) -> int:
    """Convert VerticalPodAutoscalers or a KRR command to OptimizationPolicies, and import VPA's checkpoints.

    Show the policies, then create them and start the operator from VPA's checkpoints:

        trimtab import vpa --output table
        trimtab import vpa --store trimtab.db | kubectl apply -f -
        trimtab import krr --command 'krr simple -n shop --cpu_percentile 99'

    The command only reads the cluster, for krr not even that. Each VPA becomes a policy with the same name and namespace.

    The policy keeps the VPA's mode, target, bounds, excluded containers and its choice for limits. Its strategy is
    vpa, which continues from VPA's own histograms. Settings that a policy cannot express are listed on stderr and as
    comments in the policy.

    Exits with 1 if a VPA cannot be converted.

    Parameters
    ----------
    what
        The source of the import: vpa, the Kubernetes VerticalPodAutoscaler, or krr, Robusta's KRR.
    namespace
        Only the VPAs in this namespace; may be given several times.
    command
        The KRR command line whose settings become a policy with strategy krr.
    directory
        Write one file for each policy to this folder instead of printing.
    store
        Import VPA's checkpoints into this store, a file or a URL as in the operator's configuration. Stop the
        operator first.
    context
        The kubeconfig context to use instead of the current one.
    kubeconfig
        The kubeconfig file to use instead of $KUBECONFIG or ~/.kube/config.
    output
        The policies as yaml or json, or a table with the result for each VPA.
    """
    if what == "krr":
        return _import_krr(command, output)
    if command:
        raise TrimtabError("--command: belongs to `trimtab import krr`")
    found = asyncio.run(_run_import(kubeconfig, context, namespace or None, store))
    with ignore_closed_pipe():
        if directory is not None:
            files = {directory / _file_name(each.vpa): _render_policy(each) for each in found if each.policy}
            write_atomically(files)
            print("\n".join(map(str, files)))
        elif output == "json":
            print(json.dumps([each.policy for each in found if each.policy], indent=2))
        elif output == "yaml":
            print("---\n".join(_render_policy(each) for each in found if each.policy), end="")
        else:
            _print_table(found)
    if output != "table":
        for each in found:
            for note in each.notes:
                print(escape_invisible(f"{each.vpa.namespace}/{each.vpa.name}: {note}"), file=sys.stderr)
    return int(any(each.policy is None for each in found))


def _import_krr(command: str, output: Literal["yaml", "json", "table"]) -> int:
    imported = convert_command(command)
    for note in imported.notes:
        print(escape_invisible(note), file=sys.stderr)
    shown = (
        json.dumps(imported.policy, indent=2) + "\n"
        if output == "json"
        else yaml.safe_dump(imported.policy, sort_keys=False)
    )
    print(shown, end="")
    return 0


async def _run_import(
    kubeconfig: str | None, context: str | None, namespaces: tuple[str, ...] | None, store: str | None
) -> list[ImportedPolicy]:
    connection = load_connection(kubeconfig=kubeconfig, context=context)
    async with Client(connection, retry=RetryPolicy(attempts=2)) as client, friendly_errors(connection):
        raw = await _list_vpas(client, namespaces)
        if not raw:
            raise TrimtabError(f"{connection.context}: the cluster has no VerticalPodAutoscaler to import")
        specs = {_project_vpa(each): each["spec"] for each in raw}
        snapshot = await take_snapshot(client, namespaces=sorted({vpa.namespace for vpa in specs}))
        workloads, ownership = list(snapshot.state.list_workloads()), snapshot.state.ownership
        owned = {each.key: top.key for each in ownership if (top := ownership.find_top_workload(each))}
        if store is not None:
            print(await _store_checkpoints(client, list(specs), workloads, store), file=sys.stderr)
    return [convert_vpa(vpa, spec, workloads, owned) for vpa, spec in specs.items()]


async def _list_vpas(client: Client, namespaces: tuple[str, ...] | None) -> list[Object]:
    try:
        return [
            each
            for namespace in namespaces or (None,)
            for each in await client.list_objects(VPAS, namespace=namespace)
        ]
    except NotFound:
        raise TrimtabError(
            f"{client.connection.context}: this cluster has no VerticalPodAutoscaler CRD ({VPAS.api_version})"
        ) from None


def _project_vpa(raw: Object) -> VerticalPodAutoscaler:
    projection = vpa_projection()
    return projection.project(msgspec.json.decode(msgspec.json.encode(raw), type=projection.wire_type))


async def _store_checkpoints(
    client: Client, known: list[VerticalPodAutoscaler], workloads: Sequence[Workload], address: str
) -> str:
    """Store the learned state where the operator loads it at start; return a message."""
    cohort = build_vpa_cohort(known, await read_checkpoints(client), workloads)
    if cohort is None:
        return "no checkpoints imported: these VPAs' containers have none"
    key = state_key(await get_cluster_uid(client), STRATEGY_SPEC, 0)
    async with Store.open(address) as store:
        if await store.states.load(key):
            raise TrimtabError(
                f"--store {address}: the store already has the state of strategy {STRATEGY_SPEC.strategy} for this cluster; name another store"
            )
        await store.states.save(key, cohort.state(), timestamp=time.time())
    return f"{address}: imported VPA's checkpoints of {pluralize(len(cohort), 'container')}"


def _file_name(vpa: VerticalPodAutoscaler) -> str:
    """Return the file name of a policy; the dot, which no namespace has, keeps names unique."""
    return check_file_name(f"{vpa.namespace}.{vpa.name}.yaml")


def _render_policy(found: ImportedPolicy) -> str:
    # A note may quote a VPA's own words: a line break there would end the comment and start YAML of its author's.
    notes = "".join(f"# {escape_invisible(note)}\n" for note in found.notes)
    return notes + yaml.safe_dump(found.policy, sort_keys=False)


def _print_table(found: list[ImportedPolicy]) -> None:
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
            Text(escape_invisible("; ".join(each.notes))),
        )
    Console().print(table)
