"""Run the actions of viewers by writing holds: apply, hold, release, revert and undo.

The sizing reconciler sees the hold on the workload and does the rest, canary included; nothing is resized from here.
"""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from trimtab.actuation.change_annotations import read_change_annotations
from trimtab.actuation.hold import HOLD_ANNOTATION, HOLD_MANAGER, Hold, read_hold
from trimtab.actuation.resources import container_sizes, format_sizes, merge_sizes
from trimtab.api.optimizationpolicy import PolicyMode
from trimtab.kube.errors import KubeError, describe
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.kinds.workloads import Workload
from trimtab.operator.views import OperatorViews, WorkloadView
from trimtab.store import HistoryRecord, StoreError
from trimtab.web.model import ActionError, WorkloadAction

log = structlog.get_logger(__name__)

_NOT_AVAILABLE = "this action is not available now; reload the page"


def list_actions(view: WorkloadView) -> dict[WorkloadAction, str]:
    """List the actions that make sense now, each with the reason why it is blocked, or an empty text."""
    hold, policy = read_hold(view.workload.annotations), view.policy
    if policy is None:
        return {}
    mode = policy.spec.mode
    if mode is PolicyMode.DISABLED:
        return {WorkloadAction.HOLD: "the policy's mode is Disabled, so Trimtab does not change it anyway"}
    found: dict[WorkloadAction, str] = {}
    wanted = _read_recommended_sizes(view)
    if wanted and wanted != container_sizes(view.containers) and (hold or mode is PolicyMode.RECOMMEND):
        found[WorkloadAction.APPLY] = ""
    found[WorkloadAction.RELEASE if hold else WorkloadAction.HOLD] = (
        _format_release_command(view.workload) if hold and hold.is_manual else ""
    )
    if _read_previous_sizes(view):
        found[WorkloadAction.REVERT] = ""
    return found


async def run_action(
    views: OperatorViews, view: WorkloadView, action: WorkloadAction, *, who: str, why: str, now: float
) -> str:
    """Run an action and return its result for the user."""
    workload = view.workload
    if refusal := list_actions(view).get(action, _NOT_AVAILABLE):
        raise ActionError(f"{action} {workload.key}: {refusal}")
    if action is WorkloadAction.RELEASE:
        await _write_hold(views, workload, None)
        await _record_history(views, workload, "released", who=who, why=why, now=now)
        return f"{workload.name}: released; its policy decides its size again."
    sizes: Mapping[str, Resources] = {}
    if action is WorkloadAction.APPLY:
        sizes = _read_recommended_sizes(view)
    elif action is WorkloadAction.REVERT:
        sizes = _read_previous_sizes(view)
    return await hold_at(views, workload, sizes, who=who, why=why, now=now)


async def hold_at(
    views: OperatorViews,
    workload: Workload,
    sizes: Mapping[str, Resources],
    *,
    who: str,
    why: str,
    now: float,
) -> str:
    """Hold a workload at these sizes, or at its current size."""
    await _write_hold(views, workload, Hold(who=who, why=why, at=int(now), sizes=dict(sizes)))
    await _record_history(views, workload, "held", who=who, why=why, now=now)
    held = (
        f"will be resized to {format_sizes(sizes)} and held there" if sizes else "is held at its current size"
    )
    return f"{workload.name} {held} until it is released."


async def _write_hold(views: OperatorViews, workload: Workload, hold: Hold | None) -> None:
    body = {
        "metadata": {
            "name": workload.name,
            "namespace": workload.namespace,
            "uid": workload.uid,  # prevents creating a workload that was deleted
            "annotations": {HOLD_ANNOTATION: hold.encode()} if hold else {},
        }
    }
    try:
        await views.objects.apply(workload.resource, body, force=True, manager=HOLD_MANAGER)
    except KubeError as error:
        raise ActionError(f"{workload.key}: the API server rejected the hold: {describe(error)}") from None


async def _record_history(
    views: OperatorViews, workload: Workload, what: str, *, who: str, why: str, now: float
) -> None:
    key = workload.key
    entry = HistoryRecord(
        timestamp=now,
        cluster=views.cluster_name,
        namespace=key.namespace,
        kind=key.kind,
        name=key.name,
        what=what,
        who=who,
        why=why,
    )
    try:
        await views.store.history.append([entry])
    except StoreError as error:
        log.warning("dashboard.history_append_failed", error=str(error))


def _read_recommended_sizes(view: WorkloadView) -> dict[str, Resources]:
    # A hold at the first of several steps would never reach the recommendation, so apply goes to the final target.
    wanted = {each.container: each.target for each in view.outcome.recommendations} if view.outcome else {}
    return merge_sizes(container_sizes(view.containers), wanted) if wanted else {}


def _read_previous_sizes(view: WorkloadView) -> dict[str, Resources]:
    """Return the sizes before the last change; nothing without a change, or if it is already undone."""
    annotations = read_change_annotations(view.workload)
    before = annotations.applied.before if annotations and annotations.applied else {}
    current = container_sizes(view.containers)
    return merge_sizes(current, before) if before and merge_sizes(current, before) != current else {}


def _format_release_command(workload: Workload) -> str:
    kind, name = workload.kind.lower(), workload.name
    return f"the hold was set by hand; remove it with: kubectl annotate {kind} {name} -n {workload.namespace} {HOLD_ANNOTATION}-"
