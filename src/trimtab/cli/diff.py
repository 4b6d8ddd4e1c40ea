"""`trimtab diff`: what templates say of resources, against what they should say."""

import asyncio
import json
from typing import Annotated, Literal

from cyclopts import Parameter

from trimtab.actuation.resources import to_manifest
from trimtab.cli import ignore_closed_pipe
from trimtab.cli._common.scan_options import ScanOptions
from trimtab.cli._common.workload_selection import WorkloadSelection, print_diff
from trimtab.scan.patches.change import ResourceChange


def diff(
    *workload: str,
    selection: WorkloadSelection = WorkloadSelection(),  # noqa: B008 - it is frozen
    scan_options: ScanOptions = ScanOptions(),  # noqa: B008 - it is frozen
    output: Annotated[Literal["diff", "json"], Parameter(name=["--output", "-o"])] = "diff",
    force: bool = False,
) -> int:
    """Show current against recommended resources as a unified diff.

    For a whole namespace, and for one workload:

        trimtab diff --namespace shop
        trimtab diff shop/deployment/web

    Exits with 1 if anything differs, like diff, and with 2 if no workload has enough usage for a recommendation.

    Parameters
    ----------
    workload
        Workloads as NAMESPACE/KIND/NAME; by default, all.
    output
        A unified diff for people, json for programs.
    force
        Include workloads with less than an hour of usage.
    """
    changes = asyncio.run(selection.find_changes(scan_options, workload, force=force))
    with ignore_closed_pipe():
        if output == "json":
            print(json.dumps([_build_record(change) for change in changes], indent=2))
        else:
            print_diff(changes)
    return int(bool(changes))


def _build_record(change: ResourceChange) -> dict[str, object]:
    workload = change.workload
    return {
        "namespace": workload.namespace,
        "kind": workload.key.kind,
        "name": workload.name,
        "confidence": change.confidence,
        "observedSeconds": change.observed_seconds,
        "containers": [
            {"name": name, "now": to_manifest(change.before[name]), "recommended": to_manifest(after)}
            for name, after in change.after.items()
        ],
    }
