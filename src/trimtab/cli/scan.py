"""`trimtab scan`: money, risk and the workloads to fix first, from a kubeconfig and whatever metrics there are."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import yaml
from cyclopts import Parameter
from rich.console import RenderableType

from trimtab.atomic_write import see_writable
from trimtab.cli import USAGE
from trimtab.cli._common.clusters import Reached, by_cluster, reach, without
from trimtab.cli._common.scan_options import Looking, drawn, write
from trimtab.errors import TrimtabError
from trimtab.kube.auth import contexts
from trimtab.scan.fail_conditions import Threshold
from trimtab.scan.model import Survey
from trimtab.scan.pricing import read_prices
from trimtab.scan.render.document import csv_text, document
from trimtab.scan.render.html import page
from trimtab.scan.render.markdown import markdown
from trimtab.scan.render.summary import together
from trimtab.scan.render.table import renderables
from trimtab.sizing.strategy import STRATEGIES

Output = Literal["table", "json", "yaml", "csv", "markdown", "html"]


def scan(
    *,
    context: Sequence[str] = (),
    all_contexts: bool = False,
    namespace: Annotated[Sequence[str], Parameter(name=["--namespace", "-n"])] = (),
    selector: Annotated[str, Parameter(name=["--selector", "-l"])] = "",
    kind: Sequence[str] = (),
    looking: Looking = Looking(),  # noqa: B008 - it is frozen
    compare: str = "",
    price_cpu: float | None = None,
    price_memory: float | None = None,
    price_file: Path | None = None,
    top: int = 10,
    fail_on: Sequence[str] = (),
    output: Annotated[Output, Parameter(name=["--output", "-o"])] = "table",
    output_file: Path | None = None,
) -> int:
    """Show what a cluster wastes and risks: requests against usage, in money, with what to change first.

    The cluster of the current context; nothing is installed or changed in it:

        trimtab scan

    A report to hand around, and a build that fails when more than a third is wasted:

        trimtab scan --output html --output-file report.html --fail-on 'waste>33%'

    Exits with 1 when a --fail-on is met, and with 2 when of several clusters one could not be looked at.

    Parameters
    ----------
    context
        The kubeconfig context to use instead of the current one; may be given several times.
    all_contexts
        Look at every context of the kubeconfig; a cluster that several lead to counts once.
    namespace
        Only this namespace; may be given several times.
    selector
        Only workloads with these labels, as kubectl takes them: app=web,tier!=back.
    kind
        Only workloads of this kind, like Deployment; may be given several times.
    compare
        Strategies to show beside it, with commas between them: vpa,krr.
    price_cpu
        What a core costs an hour; OpenCost's default price when not given.
    price_memory
        What a GiB of memory costs an hour.
    price_file
        A YAML file with cpu, memory and currency instead.
    top
        How many containers a table shows; 0 for all.
    fail_on
        Exit with 1 when there is more than this: waste>30%, waste>100 (money a month), risk, oom, throttling, unset.
    output
        A table, json, yaml or csv for programs, markdown for a pull request, html for a page with charts.
    output_file
        Write to this file instead; it is written whole or not at all.
    """
    if output_file:
        see_writable(output_file)
    if top < 0:
        raise TrimtabError(f"--top {top}: must be 0, for all, or more")
    thresholds = [Threshold.parse(text) for text in fail_on]
    prices = read_prices(price_file, cpu=price_cpu, memory=price_memory)
    peers = [name for name in compare.split(",") if name]
    for name in (looking.strategy, *peers):
        STRATEGIES.type_of(name)

    look = partial(
        looking.survey,
        namespaces=namespace or None,
        labels=selector,
        kinds=kind,
        compare=peers,
        prices=prices,
    )
    names = _contexts(looking.kubeconfig, context, every=all_contexts)
    reached = partial(reach, kubeconfig=looking.kubeconfig, namespaces=namespace or None)
    surveys, failed = _surveys(names, reached, look, partial(looking.unseen, prices=prices))
    if not failed and not any(found.workloads or found.skipped for found in surveys):
        raise TrimtabError("no workloads found; see --namespace, --selector and --kind")
    write(_rendered(surveys, output, top=top, to_file=output_file is not None), output_file)
    broken = [why for threshold in thresholds if (why := threshold.broken_by(surveys))]
    for why in broken:
        print(f"trimtab: {why}", file=sys.stderr)
    return USAGE if failed else int(bool(broken))


def _surveys(
    names: Sequence[str | None],
    reached: Callable[[str], Awaitable[Reached]],
    look: Callable[..., Awaitable[Survey]],
    unseen: Callable[[str, str], Survey],
) -> tuple[list[Survey], bool]:
    """Each cluster once, and whether one of them failed: of several that is told, and keeps nobody from the others."""
    surveys: list[Survey] = []  # no task's result: to end its loop, asyncio writes that out, however long

    async def look_at_all() -> bool:
        if len(names) == 1:
            surveys.append(await look(context=names[0]))
            return False
        errors: dict[str, TrimtabError] = {}
        missed: set[str] = set()
        for group in by_cluster([await reached(name) for name in names if name is not None]):
            found, wrong = await _by_any_of(group, look)
            errors |= wrong
            if not found:
                missed |= wrong.keys()
                found = [unseen(context, str(error)) for context, error in wrong.items()]
            surveys.extend(found)
        last = errors.popitem()[1] if errors.keys() == set(names) else None
        for error in errors.values():
            print(f"trimtab: {error}", file=sys.stderr)
        if last is not None:  # nothing was seen at all: whoever called us tells of this one
            raise last
        return bool(missed)

    return surveys, asyncio.run(look_at_all())


async def _by_any_of(
    contexts: Sequence[Reached], look: Callable[..., Awaitable[Survey]]
) -> tuple[list[Survey], dict[str, TrimtabError]]:
    """Look at one cluster by the contexts that lead there: one that sees all is enough, and nothing counts twice."""
    found: list[Survey] = []
    errors: dict[str, TrimtabError] = {}
    for place, each in enumerate(contexts, 1):
        try:
            found.append(without(await look(context=each.context), found))
        except TrimtabError as error:
            errors[each.context] = error
            continue
        if each.sees_all:
            for other in contexts[place:]:
                same = f"the same cluster as {each.context}, which is counted once"
                print(f"trimtab: {other.context}: {same}", file=sys.stderr)
            break
    return found, errors


def _contexts(kubeconfig: str | None, given: Sequence[str], *, every: bool) -> Sequence[str | None]:
    if not every:
        return given or (None,)
    if given:
        raise TrimtabError("--all-contexts: names every context already; leave --context out")
    found = [known.name for known in contexts(kubeconfig)]
    if not found:
        raise TrimtabError("--all-contexts: no kubeconfig with a context found; set KUBECONFIG")
    return found


def _rendered(surveys: Sequence[Survey], output: Output, *, top: int, to_file: bool) -> str:
    match output:
        case "json":
            written = msgspec.json.encode({"clusters": [document(found) for found in surveys]})
            return msgspec.json.format(written, indent=2).decode() + "\n"
        case "yaml":
            return yaml.safe_dump({"clusters": [document(found) for found in surveys]}, sort_keys=False)
        case "csv":
            return csv_text(surveys)
        case "markdown":
            return "\n".join(markdown(found, top=top) for found in surveys)
        case "html":
            return page(surveys)
    return drawn(lambda width: _lines(surveys, width=width, top=top), to_file=to_file)


def _lines(surveys: Sequence[Survey], *, width: int, top: int) -> Iterator[RenderableType]:
    for number, found in enumerate(surveys):
        if number:
            yield ""
        yield from renderables(found, width=width, top=top)
    if len(surveys) > 1:
        yield ""
        yield together(surveys)
