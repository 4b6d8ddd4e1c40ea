"""`trimtab diff`: what templates say of resources, against what they should say."""

import asyncio
import json
from typing import Annotated, Literal

from cyclopts import Parameter

from trimtab.actuation.resources import written
from trimtab.cli import until_unread
from trimtab.cli._common.scan_options import Looking
from trimtab.cli._common.workload_selection import Choosing, show_diff
from trimtab.scan.patches.change import Change


def diff(
    *workload: str,
    choosing: Choosing = Choosing(),  # noqa: B008 - it is frozen
    looking: Looking = Looking(),  # noqa: B008 - it is frozen
    output: Annotated[Literal["diff", "json"], Parameter(name=["--output", "-o"])] = "diff",
) -> int:
    """Show current against recommended resources as a unified diff.

    Of a whole namespace, and of one workload:

        trimtab diff --namespace shop
        trimtab diff shop/deployment/web

    Exits with 1 when anything differs, as diff does.

    Parameters
    ----------
    workload
        Only these, each as NAMESPACE/KIND/NAME; all when none is given.
    output
        A unified diff for people, json for programs.
    """
    changes = asyncio.run(choosing.changes(looking, workload))
    with until_unread():
        if output == "json":
            print(json.dumps([_record(change) for change in changes], indent=2))
        else:
            show_diff(changes)
    return int(bool(changes))


def _record(change: Change) -> dict[str, object]:
    workload = change.workload
    return {
        "namespace": workload.namespace,
        "kind": workload.key.kind,
        "name": workload.name,
        "containers": [
            {"name": name, "now": written(change.before[name]), "recommended": written(after)}
            for name, after in change.after.items()
        ],
    }
