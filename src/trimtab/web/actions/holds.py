"""What a viewer can do to a workload, done as a hold on it: apply, hold, release, revert, and put back what once was.

The loop finds the hold on the workload and does the rest, canary and all; nothing is changed from here.
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
from trimtab.operator.state import OperatorState
from trimtab.store import HistoryRecord, StoreError
from trimtab.web.backends.backend import ActionError
from trimtab.web.model import WorkloadAction

log = structlog.get_logger(__name__)

_NOT_AVAILABLE = "it is not to be done now; load the page again"


def list_actions(state: OperatorState, workload: Workload) -> dict[WorkloadAction, str]:
    """What makes sense now, and why it cannot be done where it cannot."""
    hold, mandate = read_hold(workload.annotations), state.policy_resolver.resolve(workload)
    if mandate is None:
        return {}
    mode = mandate.spec.mode
    if mode is PolicyMode.DISABLED:
        return {WorkloadAction.HOLD: "the mode is Disabled, so that nothing is done to it anyway"}
    found: dict[WorkloadAction, str] = {}
    wanted = _read_recommended_sizes(state, workload)
    if wanted and wanted != _read_current_sizes(state, workload) and (hold or mode is PolicyMode.RECOMMEND):
        found[WorkloadAction.APPLY] = ""
    found[WorkloadAction.RELEASE if hold else WorkloadAction.HOLD] = (
        _format_release_command(workload) if hold and hold.is_manual else ""
    )
    if _read_previous_sizes(state, workload):
        found[WorkloadAction.REVERT] = ""
    return found


async def run_action(
    state: OperatorState, workload: Workload, action: WorkloadAction, *, who: str, why: str, now: float
) -> str:
    """Do it, and tell what comes of it."""
    if refusal := list_actions(state, workload).get(action, _NOT_AVAILABLE):
        raise ActionError(f"{action} {workload.key}: {refusal}")
    if action is WorkloadAction.RELEASE:
        await _write_hold(state, workload, None)
        await _record_history(state, workload, "released", who=who, why=why, now=now)
        return f"{workload.name} is left to its policy again."
    sizes: Mapping[str, Resources] = {}
    if action is WorkloadAction.APPLY:
        sizes = _read_recommended_sizes(state, workload)
    elif action is WorkloadAction.REVERT:
        sizes = _read_previous_sizes(state, workload)
    return await hold_at(state, workload, sizes, who=who, why=why, now=now)


async def hold_at(
    state: OperatorState,
    workload: Workload,
    sizes: Mapping[str, Resources],
    *,
    who: str,
    why: str,
    now: float,
) -> str:
    """Hold it at these sizes, or where it is."""
    await _write_hold(state, workload, Hold(who=who, why=why, at=int(now), sizes=dict(sizes)))
    await _record_history(state, workload, "held", who=who, why=why, now=now)
    where = f"goes to {format_sizes(sizes)}, and stays there" if sizes else "stays as it is"
    return f"{workload.name} {where} until it is released."


async def _write_hold(state: OperatorState, workload: Workload, hold: Hold | None) -> None:
    body = {
        "metadata": {
            "name": workload.name,
            "namespace": workload.namespace,
            "uid": workload.uid,  # or one that is gone would be made anew
            "annotations": {HOLD_ANNOTATION: hold.encode()} if hold else {},
        }
    }
    try:
        await state.objects.apply(workload.resource, body, force=True, manager=HOLD_MANAGER)
    except KubeError as error:
        raise ActionError(f"{workload.key}: the cluster refused it: {describe(error)}") from None


async def _record_history(
    state: OperatorState, workload: Workload, what: str, *, who: str, why: str, now: float
) -> None:
    key = workload.key
    entry = HistoryRecord(
        timestamp=now,
        cluster=state.cluster_name,
        namespace=key.namespace,
        kind=key.kind,
        name=key.name,
        what=what,
        who=who,
        why=why,
    )
    try:
        await state.store.history.append([entry])
    except StoreError as error:
        log.warning("dashboard.not_kept", error=str(error))


def _read_current_sizes(state: OperatorState, workload: Workload) -> dict[str, Resources]:
    return container_sizes(state.effective_containers(workload))


def _read_recommended_sizes(state: OperatorState, workload: Workload) -> dict[str, Resources]:
    outcome = state.status_writer.get_outcome(workload.key)
    # One who applies by hand wants to get there: held at the first of several steps it would stay short of what it needs.
    wanted = {each.container: each.target for each in outcome.recommendations} if outcome else {}
    return merge_sizes(_read_current_sizes(state, workload), wanted) if wanted else {}


def _read_previous_sizes(state: OperatorState, workload: Workload) -> dict[str, Resources]:
    """What pods had before the last change that is in effect; nothing where there was none, or it is so already."""
    marks = read_change_annotations(workload)
    before = marks.applied.before if marks and marks.applied else {}
    has = _read_current_sizes(state, workload)
    return merge_sizes(has, before) if before and merge_sizes(has, before) != has else {}


def _format_release_command(workload: Workload) -> str:
    kind, name = workload.kind.lower(), workload.name
    return f"it was set by hand: kubectl annotate {kind} {name} -n {workload.namespace} {HOLD_ANNOTATION}-"
