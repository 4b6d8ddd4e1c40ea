"""Select the workloads to change, for `trimtab diff` and `trimtab patch`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from trimtab.cli import print_message
from trimtab.cli._common.scan_options import ScanOptions
from trimtab.errors import TrimtabError
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.plural import format_time_span, pluralize
from trimtab.scan.model import SHORT_KINDS, ScanResult, SkippedWorkload, WorkloadFinding
from trimtab.scan.patches.change import ResourceChange, build_change, missing_containers_reason
from trimtab.scan.patches.render import render_diff
from trimtab.scan.render.summary import list_gaps, list_operator_notes
from trimtab.scan.scan import WorkloadFilter

LEAST_HISTORY = 3600.0
"""Seconds of usage that a change of files or templates needs; less may be no more than a start."""

_COLOURS = {"---": "bold", "+++": "bold", "@@ ": "cyan", "-": "red", "+": "green"}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class WorkloadSelection:
    """The options that select workloads."""

    context: str | None = None
    """The kubeconfig context to use instead of the current one."""

    namespace: Annotated[tuple[str, ...], Parameter(name=["--namespace", "-n"])] = ()
    """Only this namespace; may be given several times."""

    selector: Annotated[str, Parameter(name=["--selector", "-l"])] = ""
    """Only workloads with these labels, in kubectl's form: app=web,tier!=back."""

    kind: tuple[str, ...] = ()
    """Only workloads of this kind, like Deployment; may be given several times."""

    async def find_changes(
        self, scan_options: ScanOptions, workloads: Sequence[str], *, force: bool, writing: str = ""
    ) -> list[ResourceChange]:
        """Find the changes of these workloads, or of all selected ones; skipped workloads are reported on stderr.

        Workloads with little usage are among the skipped ones unless `force` is set. `writing` names the option that
        writes the changes; it is rejected if the policies or the operator's configuration could not be read.
        """
        wanted = [parse_workload(text) for text in workloads]
        if wanted and (self.namespace or self.kind):
            raise TrimtabError("WORKLOAD: contains the namespace and the kind; remove --namespace and --kind")
        selected = WorkloadFilter(
            namespaces=sorted({each.namespace for each in wanted}) or self.namespace or None,
            labels=self.selector,
            kinds=sorted({each.kind for each in wanted}) or self.kind,
            names=sorted({each.name for each in wanted}),
        )
        found = await scan_options.scan(selected, context=self.context)
        _check_policies(found, writing)
        findings = [each for each in found.workloads if not wanted or _is_selected(each, wanted)]
        skipped = [each for each in found.skipped if not wanted or _is_selected(each, wanted)]
        seen: list[WorkloadFinding | SkippedWorkload] = [*findings, *skipped]
        for each in wanted:
            meant = [one for one in seen if _is_selected(one, [each])]
            if not meant:
                raise TrimtabError(
                    f"WORKLOAD {each.namespace}/{each.kind}/{each.name}: the workload does not exist; `trimtab scan` lists all"
                )
            if not matches_any(meant[0].key, [each]):
                print_message(f"{each.namespace}/{each.kind}/{each.name}: belongs to {meant[0].key}")
        for line in list_gaps(found):
            print_message(line)
        _print_skipped(skipped, findings)
        young = [one for one in findings if one.observed_seconds < LEAST_HISTORY and not force]
        for one in young:
            print_message(
                f"{one.key}: skipped: only {format_time_span(one.observed_seconds)} of usage known from {found.source}; "
                f"wait for {format_time_span(LEAST_HISTORY)}, or add --force"
            )
        judged = [one for one in findings if one not in young]
        if (skipped or young) and not judged:
            count = pluralize(len(skipped) + len(young), "workload")
            raise TrimtabError(
                f"no workload has enough usage for a recommendation: {count} skipped, for the reasons above"
            )
        changed = [(one, change) for one in judged if (change := build_change(one))]
        for line in list_operator_notes(one for one, _ in changed if one.policy or one.intent):
            print_message(line)
        return [change for _, change in changed]


def _check_policies(found: ScanResult, writing: str) -> None:
    """Reject the option that writes changes if what decides about policies could not be read."""
    if writing and (unread := found.unread_policy_inputs):
        reasons = "; ".join(f"{resource}: {reason}" for resource, reason in sorted(unread.items()))
        raise TrimtabError(
            f"{writing}: writes nothing without the cluster's policies: {reasons}; get the right to read them, "
            "or add --ignore-policies"
        )


def _print_skipped(skipped: Sequence[SkippedWorkload], findings: Sequence[WorkloadFinding]) -> None:
    """Print the workloads and containers that cannot be changed, each with the reason."""
    for skip in skipped:
        print_message(f"{skip.key}: skipped: {skip.reason}")
    for one in findings:
        if reason := missing_containers_reason(one):
            print_message(f"{one.key}: skipped: {reason}")


def print_diff(changes: Sequence[ResourceChange]) -> None:
    """Print the changes as a unified diff, with colours on a terminal."""
    console = Console(soft_wrap=True)
    for change in changes:
        for line in render_diff(change).splitlines():
            style = next((colour for head, colour in _COLOURS.items() if line.startswith(head)), "")
            console.print(Text(line, style=style))


def parse_workload(text: str) -> WorkloadKey:
    """Parse a workload as users write it."""
    parts = text.split("/")
    if len(parts) != 3 or not all(parts):
        raise TrimtabError(f"WORKLOAD {text}: write it as NAMESPACE/KIND/NAME, like shop/deployment/web")
    namespace, kind, name = parts
    return WorkloadKey(kind, namespace, name)


def _is_selected(found: WorkloadFinding | SkippedWorkload, wanted: Sequence[WorkloadKey]) -> bool:
    """Return whether the user named this workload, or one that it owns."""
    return any(matches_any(key, wanted) for key in (found.key, *found.owned))


def matches_any(key: WorkloadKey, wanted: Sequence[WorkloadKey]) -> bool:
    """Return whether a key matches; kinds may be in any case, without group, or short."""
    full = key.kind.lower()
    spellings = {full, full.partition(".")[0], SHORT_KINDS.get(key.kind)}
    return any(
        each.kind.lower() in spellings and (each.namespace, each.name) == (key.namespace, key.name)
        for each in wanted
    )
