"""A change as people review it and as `kubectl` and `kustomize` take it."""

from __future__ import annotations

import difflib
import json
import shlex
from collections import Counter
from collections.abc import Sequence
from io import StringIO
from typing import Any

import yaml
from yaml.nodes import MappingNode

from trimtab.actuation.sizes import Sizes, written
from trimtab.actuation.template import removed
from trimtab.errors import TrimtabError
from trimtab.survey.patches.change import Change
from trimtab.survey.patches.splice import Text, child, items, plain

KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml", "Kustomization")
"""What such a file may be called; two in a folder are refused by `kustomize`."""
_COMPONENT = "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n"


def diff(change: Change) -> str:
    """What the template says of resources against what it should say, as `diff -u` has it."""
    old, new = (_listed(sizes) for sizes in (change.before, change.after))
    lines = difflib.unified_diff(
        old, new, fromfile=f"{change.path} now", tofile=f"{change.path} recommended", n=len(old)
    )
    return "".join(lines)


def edit(path: str, before: str, after: str) -> str:
    """How a file changes, for people and for `patch` and `git apply`."""
    old, new = (
        StringIO(text, newline="\n").readlines() for text in (before, after)
    )  # nothing else ends a line
    lines = difflib.unified_diff(old, new, f"a/{path}", f"b/{path}")
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def command(change: Change) -> str:
    """The `kubectl` command that makes a change."""
    workload = change.workload
    where = ["-n", workload.namespace, f"{workload.resource}/{workload.name}"]
    mains = {each.name for each in workload.containers if each.role == "main"}
    takes_away = any(removed(change.before[name], after) for name, after in change.after.items())
    if takes_away or not change.after.keys() <= mains:  # neither of which `set resources` can do
        body = {key: part for key, part in change.patch.items() if key == "spec"}
        patch = json.dumps(body, separators=(",", ":"))
        return shlex.join(["kubectl", "patch", *where, "--type", "strategic", "--patch", patch])
    return "\n".join(
        shlex.join(["kubectl", "set", "resources", *where, f"--containers={name}", *_flags(after)])
        for name, after in ((name, written(sizes)) for name, sizes in change.after.items())
    )


def manifest(change: Change) -> str:
    """The strategic-merge patch, as a file."""
    return _dumped(change.patch)


def file_name(change: Change) -> str:
    return change.path.replace("/", "-") + ".yaml"


def kustomization(
    changes: Sequence[Change], existing: str | None = None, *, where: str = KUSTOMIZATIONS[0]
) -> str:
    """A kustomization with an entry for each patch: the one that is there with what it lacks, or a new component.

    A patch names its target without a namespace, which an overlay may give; only where that leaves two, with it.
    """
    names = Counter((each.workload.kind, each.workload.name) for each in changes)
    entries = [
        {
            "path": file_name(each),
            "target": _target(each, alone=names[each.workload.kind, each.workload.name] == 1),
        }
        for each in changes
    ]
    if existing is None:
        return _COMPONENT + _dumped({"patches": entries})
    text = Text(existing, where=where)
    root = text.roots[0] if text.roots else None
    if not isinstance(root, MappingNode):
        raise TrimtabError(f"{where}: this is no kustomization; name another --directory")
    patches = child(root, "patches")
    there = {plain(child(entry, "path")) for entry in items(patches)}
    missing = [entry for entry in entries if entry["path"] not in there]
    return text.with_([*text.append(root, "patches", _dumped(missing))]) if missing else existing


def _listed(sizes: Sizes) -> list[str]:
    containers = [{"name": name, "resources": written(each)} for name, each in sizes.items()]
    return _dumped(containers).splitlines(keepends=True)


def _flags(after: dict[str, Any]) -> list[str]:
    return [
        f"--{kind}=" + ",".join(f"{what}={amount}" for what, amount in amounts.items())
        for kind, amounts in after.items()
    ]


def _target(change: Change, *, alone: bool) -> dict[str, str]:
    resource, workload = change.workload.resource, change.workload
    target = {
        "group": resource.group,
        "version": resource.version,
        "kind": resource.kind,
        "name": workload.name,
    }
    return target if alone else {**target, "namespace": workload.namespace}


def _dumped(body: Any) -> str:
    return yaml.safe_dump(body, sort_keys=False, default_flow_style=False)
