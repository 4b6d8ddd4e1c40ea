"""`trimtab scan`: money, risk and the workloads to fix first, from a kubeconfig and whatever metrics there are."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import yaml
from cyclopts import Parameter
from rich.console import RenderableType

from trimtab.atomic_write import check_writable
from trimtab.cli import USAGE_ERROR, print_message
from trimtab.cli._common.clusters import ClusterContext, exclude_known, group_by_cluster, probe_context
from trimtab.cli._common.scan_options import ScanOptions, render_text, write_output
from trimtab.errors import TrimtabError
from trimtab.kube.auth import list_contexts
from trimtab.memory_trim import limit_allocator_arenas
from trimtab.scan.fail_conditions import FailCondition
from trimtab.scan.model import ScanResult
from trimtab.scan.pricing import ResourcePrices, read_prices
from trimtab.scan.render.document import build_document, render_csv
from trimtab.scan.render.html import render_page
from trimtab.scan.render.markdown import render_markdown
from trimtab.scan.render.summary import format_all_clusters
from trimtab.scan.render.table import render_groups, render_scan
from trimtab.scan.scan import WorkloadFilter
from trimtab.sizing.strategy import STRATEGIES

Output = Literal["table", "json", "yaml", "csv", "markdown", "html"]


def scan(
    *,
    context: Sequence[str] = (),
    all_contexts: bool = False,
    namespace: Annotated[Sequence[str], Parameter(name=["--namespace", "-n"])] = (),
    selector: Annotated[str, Parameter(name=["--selector", "-l"])] = "",
    kind: Sequence[str] = (),
    scan_options: ScanOptions = ScanOptions(),  # noqa: B008 - it is frozen
    compare: str = "",
    price_cpu: float | None = None,
    price_memory: float | None = None,
    price_file: Path | None = None,
    group_by: str = "",
    top: int = 10,
    fail_on: Sequence[str] = (),
    output: Annotated[Output, Parameter(name=["--output", "-o"])] = "table",
    output_file: Path | None = None,
) -> int:
    """Show the waste and the risks of a cluster: requests against usage, in money, the largest first.

    The current context's cluster; the scan installs and changes nothing:

        trimtab scan

    With a bill for each team:

        trimtab scan --group-by team

    A report to share, and a build that fails if more than a third is wasted:

        trimtab scan --output html --output-file report.html --fail-on 'waste>33%'

    Exits with 1 if a --fail-on condition is met, and with 2 if one of several clusters could not be scanned.

    Parameters
    ----------
    context
        The kubeconfig context to use instead of the current one; may be given several times.
    all_contexts
        Scan every context of the kubeconfig; a cluster with several contexts counts once.
    namespace
        Only this namespace; may be given several times.
    selector
        Only workloads with these labels, in kubectl's form: app=web,tier!=back.
    kind
        Only workloads of this kind, like Deployment; may be given several times.
    compare
        More strategies to compare, separated by commas: vpa,krr.
    price_cpu
        The price of a core for an hour; the default is that of the operator's configuration, or for several clusters
        OpenCost's.
    price_memory
        The price of a GiB of memory for an hour, with the same default.
    price_file
        A YAML file with cpu, memory and currency, or some of them.
    group_by
        Show costs and savings by this label or annotation of the workloads too, like team, or by namespace; in a table, json and yaml.
    top
        The number of containers in a table; 0 for all.
    fail_on
        Exit with 1 if a condition is met: waste>30%, waste>100 (money a month), risk, oom, throttling, unset; may be
        given several times.
    output
        A table, json, yaml or csv for programs, markdown for a pull request, html for a page with charts.
    output_file
        Write to this file instead of printing; a failure leaves no partial file.
    """
    if output_file:
        check_writable(output_file)
    if top < 0:
        raise TrimtabError(f"--top {top}: must be 0, for all, or more")
    if group_by and output not in {"table", "json", "yaml"}:
        raise TrimtabError(f"--group-by: has no effect with --output {output}; use table, json or yaml")
    thresholds = [FailCondition.parse(text) for text in fail_on]
    peers = [name for name in compare.split(",") if name]
    for name in filter(None, (scan_options.strategy, *peers)):
        STRATEGIES.load_type(name)

    workloads = WorkloadFilter(namespaces=namespace or None, labels=selector, kinds=kind)
    names = _resolve_contexts(scan_options.kubeconfig, context, every=all_contexts)
    # The configurations of several operators may have several currencies, whose sum would mean nothing.
    defaults = ResourcePrices() if len(names) > 1 else None
    prices = read_prices(price_file, cpu=price_cpu, memory=price_memory, defaults=defaults)
    scan_one_cluster = partial(scan_options.scan, workloads, compare=peers, prices=prices, group_by=group_by)
    reached = partial(probe_context, kubeconfig=scan_options.kubeconfig, namespaces=namespace or None)
    scans, failed = _scan_clusters(
        names, reached, scan_one_cluster, partial(scan_options.build_failed_scan, prices=prices)
    )
    if not failed and not any(found.workloads or found.skipped for found in scans):
        raise TrimtabError("no workloads found; see --namespace, --selector and --kind")
    write_output(
        _render(scans, output, top=top, group_by=group_by, to_file=output_file is not None), output_file
    )
    broken = [why for threshold in thresholds if (why := threshold.find_violation(scans))]
    for why in broken:
        print_message(why)
    return USAGE_ERROR if failed else int(bool(broken))


def _scan_clusters(
    names: Sequence[str | None],
    probe: Callable[[str], Awaitable[ClusterContext]],
    scan_one: Callable[..., Awaitable[ScanResult]],
    build_failed: Callable[[str, str], ScanResult],
) -> tuple[list[ScanResult], bool]:
    """Scan each cluster once, and return whether one failed; a failure does not stop the others."""
    scans: list[ScanResult] = []  # not a task's result: asyncio would format it at shutdown, which is slow

    async def scan_all() -> bool:
        if len(names) == 1:
            scans.append(await scan_one(context=names[0]))
            return False
        errors: dict[str, TrimtabError] = {}
        missed: set[str] = set()
        for group in group_by_cluster([await probe(name) for name in names if name is not None]):
            found, wrong = await _scan_by_contexts(group, scan_one)
            errors |= wrong
            if not found:
                missed |= wrong.keys()
                found = [build_failed(context, str(error)) for context, error in wrong.items()]
            scans.extend(found)
        last = errors.popitem()[1] if errors.keys() == set(names) else None
        for error in errors.values():
            print_message(str(error))
        if last is not None:  # every cluster failed: the caller reports the last error
            raise last
        return bool(missed)

    limit_allocator_arenas()
    return scans, asyncio.run(scan_all())


async def _scan_by_contexts(
    contexts: Sequence[ClusterContext], scan_one: Callable[..., Awaitable[ScanResult]]
) -> tuple[list[ScanResult], dict[str, TrimtabError]]:
    """Scan one cluster through its contexts until one sees everything; no workload counts twice."""
    found: list[ScanResult] = []
    errors: dict[str, TrimtabError] = {}
    for place, each in enumerate(contexts, 1):
        try:
            found.append(exclude_known(await scan_one(context=each.context), found))
        except TrimtabError as error:
            errors[each.context] = error
            continue
        if each.sees_all:
            for other in contexts[place:]:
                same = f"the same cluster as {each.context}; it is counted once"
                print_message(f"{other.context}: {same}")
            break
    return found, errors


def _resolve_contexts(kubeconfig: str | None, given: Sequence[str], *, every: bool) -> Sequence[str | None]:
    if not every:
        return given or (None,)
    if given:
        raise TrimtabError("--all-contexts: includes every context; remove --context")
    found = [known.name for known in list_contexts(kubeconfig)]
    if not found:
        raise TrimtabError("--all-contexts: no kubeconfig with a context found; set KUBECONFIG")
    return found


def _render(scans: Sequence[ScanResult], output: Output, *, top: int, group_by: str, to_file: bool) -> str:
    match output:
        case "json" | "yaml":
            document = {"clusters": [build_document(found, group_by=group_by) for found in scans]}
            if output == "yaml":
                return yaml.safe_dump(document, sort_keys=False)
            return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
        case "csv":
            return render_csv(scans)
        case "markdown":
            return "\n".join(render_markdown(found, top=top) for found in scans)
        case "html":
            return render_page(scans)
    return render_text(
        lambda width: _render_lines(scans, width=width, top=top, group_by=group_by), to_file=to_file
    )


def _render_lines(
    scans: Sequence[ScanResult], *, width: int, top: int, group_by: str
) -> Iterator[RenderableType]:
    for number, found in enumerate(scans):
        if number:
            yield ""
        yield from render_scan(found, width=width, top=top)
        if group_by:
            yield ""
            yield render_groups(found, group_by)
    if len(scans) > 1:
        yield ""
        yield format_all_clusters(scans)
