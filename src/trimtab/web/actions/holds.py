"""What a viewer can do to a workload, done as a hold on it: apply, hold, release, revert, and put back what once was.

The loop finds the hold on the workload and does the rest, canary and all; nothing is changed from here.
"""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from trimtab.actuation.change_annotations import own_marks
from trimtab.actuation.hold import HOLD, MANAGER, Hold, read_hold
from trimtab.actuation.resources import joined, said, sizes_of
from trimtab.api.optimizationpolicy import Mode
from trimtab.kube.errors import KubeError, describe
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.kinds.workloads import Workload
from trimtab.operator.state import Desk
from trimtab.store import HistoryEntry, StoreError
from trimtab.web.backends.backend import ActError
from trimtab.web.model import Act

log = structlog.get_logger(__name__)

_NOT_NOW = "it is not to be done now; load the page again"


def offered(desk: Desk, workload: Workload) -> dict[Act, str]:
    """What makes sense now, and why it cannot be done where it cannot."""
    hold, mandate = read_hold(workload.annotations), desk.orders.of(workload)
    if mandate is None:
        return {}
    mode = mandate.spec.mode
    if mode is Mode.DISABLED:
        return {Act.HOLD: "the mode is Disabled, so that nothing is done to it anyway"}
    found: dict[Act, str] = {}
    wanted = _recommended(desk, workload)
    if wanted and wanted != _has(desk, workload) and (hold or mode is Mode.RECOMMEND):
        found[Act.APPLY] = ""
    found[Act.RELEASE if hold else Act.HOLD] = _how_by_hand(workload) if hold and hold.by_hand else ""
    if _before(desk, workload):
        found[Act.REVERT] = ""
    return found


async def act(desk: Desk, workload: Workload, asked: Act, *, who: str, why: str, now: float) -> str:
    """Do it, and tell what comes of it."""
    if refusal := offered(desk, workload).get(asked, _NOT_NOW):
        raise ActError(f"{asked} {workload.key}: {refusal}")
    if asked is Act.RELEASE:
        await _write(desk, workload, None)
        await _note(desk, workload, "released", who=who, why=why, now=now)
        return f"{workload.name} is left to its policy again."
    sizes: Mapping[str, Resources] = {}
    if asked is Act.APPLY:
        sizes = _recommended(desk, workload)
    elif asked is Act.REVERT:
        sizes = _before(desk, workload)
    return await hold_at(desk, workload, sizes, who=who, why=why, now=now)


async def hold_at(
    desk: Desk, workload: Workload, sizes: Mapping[str, Resources], *, who: str, why: str, now: float
) -> str:
    """Hold it at these sizes, or where it is."""
    await _write(desk, workload, Hold(who=who, why=why, at=int(now), sizes=dict(sizes)))
    await _note(desk, workload, "held", who=who, why=why, now=now)
    where = f"goes to {said(sizes)}, and stays there" if sizes else "stays as it is"
    return f"{workload.name} {where} until it is released."


async def _write(desk: Desk, workload: Workload, hold: Hold | None) -> None:
    body = {
        "metadata": {
            "name": workload.name,
            "namespace": workload.namespace,
            "uid": workload.uid,  # or one that is gone would be made anew
            "annotations": {HOLD: hold.written()} if hold else {},
        }
    }
    try:
        await desk.objects.apply(workload.resource, body, force=True, manager=MANAGER)
    except KubeError as error:
        raise ActError(f"{workload.key}: the cluster refused it: {describe(error)}") from None


async def _note(desk: Desk, workload: Workload, what: str, *, who: str, why: str, now: float) -> None:
    key = workload.key
    entry = HistoryEntry(
        timestamp=now,
        cluster=desk.name,
        namespace=key.namespace,
        kind=key.kind,
        name=key.name,
        what=what,
        who=who,
        why=why,
    )
    try:
        await desk.store.history.append([entry])
    except StoreError as error:
        log.warning("dashboard.not_kept", error=str(error))


def _has(desk: Desk, workload: Workload) -> dict[str, Resources]:
    return sizes_of(desk.effective_containers(workload))


def _recommended(desk: Desk, workload: Workload) -> dict[str, Resources]:
    outcome = desk.statuses.outcome(workload.key)
    # One who applies by hand wants to get there: held at the first of several steps it would stay short of what it needs.
    wanted = {each.container: each.target for each in outcome.recommendations} if outcome else {}
    return joined(_has(desk, workload), wanted) if wanted else {}


def _before(desk: Desk, workload: Workload) -> dict[str, Resources]:
    """What pods had before the last change that is in effect; nothing where there was none, or it is so already."""
    marks = own_marks(workload)
    before = marks.applied.before if marks and marks.applied else {}
    has = _has(desk, workload)
    return joined(has, before) if before and joined(has, before) != has else {}


def _how_by_hand(workload: Workload) -> str:
    kind, name = workload.kind.lower(), workload.name
    return f"it was set by hand: kubectl annotate {kind} {name} -n {workload.namespace} {HOLD}-"
