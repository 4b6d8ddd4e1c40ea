"""Render a change as a diff, a `kubectl` command or a patch."""

from __future__ import annotations

import difflib
import json
import shlex
from io import StringIO
from typing import Any

import yaml

from trimtab.actuation.resources import Sizes, list_removed, to_manifest
from trimtab.printable import escape_invisible
from trimtab.scan.patches.change import ResourceChange


def render_diff(change: ResourceChange) -> str:
    """Render the current and the recommended resources of the template as a unified diff."""
    old, new = (_list_resource_lines(sizes) for sizes in (change.before, change.after))
    recommended = f"{change.path} recommended"
    if change.confidence == "low":
        recommended += f" ({change.basis})"
    lines = difflib.unified_diff(old, new, fromfile=f"{change.path} now", tofile=recommended, n=len(old))
    return "".join(lines)


def render_edit(path: str, before: str, after: str) -> str:
    """Render the change of a file as a unified diff that `patch` and `git apply` accept."""
    old, new = (
        StringIO(text, newline="\n").readlines() for text in (before, after)
    )  # split at line feeds only, as diff does
    lines = difflib.unified_diff(old, new, f"a/{path}", f"b/{path}")
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def render_command(change: ResourceChange) -> str:
    """Render the `kubectl` command that applies a change, below a comment if the confidence in it is low."""
    command = _render_kubectl(change)
    return f"# {escape_invisible(change.basis)}\n{command}" if change.confidence == "low" else command


def _render_kubectl(change: ResourceChange) -> str:
    workload = change.workload
    where = ["-n", workload.namespace, f"{workload.resource}/{workload.name}"]
    mains = {each.name for each in workload.containers if each.role == "main"}
    removes = any(list_removed(change.before[name], after) for name, after in change.after.items())
    # `kubectl set resources` can neither remove amounts nor change init containers.
    if removes or not change.after.keys() <= mains:
        body = {key: part for key, part in change.patch.items() if key == "spec"}
        patch = json.dumps(body, separators=(",", ":"))
        return shlex.join(["kubectl", "patch", *where, "--type", "strategic", "--patch", patch])
    return "\n".join(
        shlex.join(["kubectl", "set", "resources", *where, f"--containers={name}", *_format_flags(after)])
        for name, after in ((name, to_manifest(sizes)) for name, sizes in change.after.items())
    )


def render_manifest(change: ResourceChange) -> str:
    """Render the strategic-merge patch as a file."""
    return dump_yaml(change.patch)


def _list_resource_lines(sizes: Sizes) -> list[str]:
    containers = [{"name": name, "resources": to_manifest(each)} for name, each in sizes.items()]
    return dump_yaml(containers).splitlines(keepends=True)


def _format_flags(after: dict[str, Any]) -> list[str]:
    return [
        f"--{kind}=" + ",".join(f"{what}={amount}" for what, amount in amounts.items())
        for kind, amounts in after.items()
    ]


def dump_yaml(body: Any) -> str:
    """Dump YAML in block style, keeping the order of keys."""
    return yaml.safe_dump(body, sort_keys=False, default_flow_style=False)
