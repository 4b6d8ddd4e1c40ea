"""`trimtab explain`: why one workload should have the size that a scan names."""

import asyncio
import json
import math
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from trimtab.atomic_write import check_writable
from trimtab.atomic_write import write_atomically as write_files
from trimtab.cli import print_message
from trimtab.cli._common.scan_options import ScanOptions, render_text, write_output
from trimtab.errors import TrimtabError
from trimtab.scan.explanation import Explanation, UsageRecorder
from trimtab.scan.explanation import explain as explained
from trimtab.scan.model import ScanResult
from trimtab.scan.render.document import build_document
from trimtab.scan.render.explanation import render_explanation, render_page
from trimtab.scan.scan import WorkloadFilter


def explain(
    workload: str,
    /,
    *,
    context: str | None = None,
    scan_options: ScanOptions = ScanOptions(),  # noqa: B008 - it is frozen
    output: Annotated[Literal["table", "json", "html", "png"], Parameter(name=["--output", "-o"])] = "table",
    output_file: Path | None = None,
) -> None:
    """Explain the recommendation for one workload: each factor with its source, a chart, a back-test on its history.

    Why does the scan recommend this size for the Deployment web in the namespace shop?

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
        Write to this file instead of printing; a failure leaves no partial file.
    """
    namespace, kind, name = _parse_workload(workload)
    if output == "png" and output_file is None:
        raise TrimtabError("--output png: needs a file; give --output-file FILE")
    if output_file:
        check_writable(output_file)
    recorder = UsageRecorder()
    selected = WorkloadFilter(namespaces=[namespace], kinds=[kind], names=[name])
    scan = asyncio.run(scan_options.scan(selected, context=context, observer=recorder))
    if not scan.workloads:
        raise TrimtabError(f"{workload}: {_missing_reason(scan)}")
    found = explained(scan, recorder)
    if found.key.name != name:
        print_message(f"{workload}: belongs to {found.key}, whose size Trimtab recommends")
    if output == "png" and output_file is not None:
        from trimtab.scan.render.explanation import render_png

        write_files({output_file: render_png(found)})
    else:
        write_output(_render(found, output, to_file=output_file is not None), output_file)


def _parse_workload(workload: str) -> list[str]:
    parts = workload.split("/")
    if len(parts) != 3 or not all(parts):
        raise TrimtabError(f"{workload}: write it as NAMESPACE/KIND/NAME, like shop/Deployment/web")
    return parts


def _missing_reason(scan: ScanResult) -> str:
    if scan.skipped:
        skipped = scan.skipped[0]
        return f"Trimtab does not size {skipped.key}: {skipped.reason}"
    return "the workload does not exist; `trimtab scan` lists all"


def _nan_to_null(scores: dict[str, float]) -> dict[str, float | None]:
    """Replace NaN, which JSON does not have, by null."""
    return {name: None if math.isnan(score) else score for name, score in scores.items()}


def _render(found: Explanation, output: str, *, to_file: bool) -> str:
    if output == "json":
        scores = {
            each.container.name: {
                backtest.strategy: _nan_to_null(backtest.scores.summary()) for backtest in each.backtests
            }
            for each in found.containers
        }
        return json.dumps({**build_document(found.scan), "backtest": scores}, indent=2) + "\n"
    if output == "html":
        return render_page(found)
    return render_text(lambda width: render_explanation(found, width=width), to_file=to_file)
