"""`trimtab explain`: why one workload should have the size that a scan names."""

import asyncio
import json
import math
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from trimtab.atomic_write import see_writable
from trimtab.atomic_write import write as write_files
from trimtab.cli._common.scan_options import Looking, drawn, write
from trimtab.cli._common.workload_selection import tell
from trimtab.errors import TrimtabError
from trimtab.scan.explanation import Explanation, Past
from trimtab.scan.explanation import explain as explained
from trimtab.scan.model import Survey
from trimtab.scan.render.document import document
from trimtab.scan.render.explanation import page, renderables


def explain(
    workload: str,
    /,
    *,
    context: str | None = None,
    looking: Looking = Looking(),  # noqa: B008 - it is frozen
    output: Annotated[Literal["table", "json", "html", "png"], Parameter(name=["--output", "-o"])] = "table",
    output_file: Path | None = None,
) -> None:
    """Explain the size of one workload: each factor with its source, a chart, a back-test on its history.

    Why should the Deployment web of the namespace shop have what the scan says?

        trimtab explain shop/Deployment/web

    Parameters
    ----------
    workload
        The workload as NAMESPACE/KIND/NAME; kinds may be short: deploy, sts, ds, cron.
    context
        The kubeconfig context to use instead of the current one.
    output
        A table with charts for people, json for programs, html for a page, png for the charts alone.
    output_file
        Write to this file instead; it is written whole or not at all.
    """
    namespace, kind, name = _parts(workload)
    if output == "png" and output_file is None:
        raise TrimtabError("--output png: say where to with --output-file FILE")
    if output_file:
        see_writable(output_file)
    past = Past()
    survey = asyncio.run(
        looking.survey(
            context=context,
            namespaces=[namespace],
            kinds=[kind],
            names=[name],
            heard=past.hear,
            on_chosen=past.expect,
        )
    )
    if not survey.workloads:
        raise TrimtabError(f"{workload}: {_why_not(survey)}")
    found = explained(survey, past)
    if found.key.name != name:
        tell(f"{workload}: belongs to {found.key}, which is what is sized")
    if output == "png" and output_file is not None:
        from trimtab.scan.render.png import png

        write_files({output_file: png(found)})
    else:
        write(_rendered(found, output, to_file=output_file is not None), output_file)


def _parts(workload: str) -> list[str]:
    parts = workload.split("/")
    if len(parts) != 3 or not all(parts):
        raise TrimtabError(f"{workload}: write it as NAMESPACE/KIND/NAME, like shop/Deployment/web")
    return parts


def _why_not(survey: Survey) -> str:
    if survey.skipped:
        return f"there is nothing to explain: {survey.skipped[0].reason}"
    return "there is no such workload; `trimtab scan` lists those that there are"


def _plain(scores: dict[str, float]) -> dict[str, float | None]:
    """JSON knows no NaN: what was not measured is null."""
    return {name: None if math.isnan(score) else score for name, score in scores.items()}


def _rendered(found: Explanation, output: str, *, to_file: bool) -> str:
    if output == "json":
        scores = {
            each.container.name: {fared.strategy: _plain(fared.scores.summary()) for fared in each.fared}
            for each in found.containers
        }
        return json.dumps({**document(found.survey), "backtest": scores}, indent=2) + "\n"
    if output == "html":
        return page(found)
    return drawn(lambda width: renderables(found, width=width), to_file=to_file)
