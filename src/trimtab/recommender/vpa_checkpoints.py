"""Import the state of the VPA's own recommender, so that containers do not start from nothing.

That recommender keeps a VerticalPodAutoscalerCheckpoint for each container of each VPA. They are read once, at the first
start; afterwards only Trimtab's own state counts. A container whose checkpoint cannot be read starts without history.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import structlog

from trimtab.kube.errors import Forbidden, NotFound, describe
from trimtab.kube.rest.client import Object
from trimtab.kube.rest.object_client import ObjectClient
from trimtab.kube.rest.resources import VPA_CHECKPOINTS
from trimtab.printable import shorten
from trimtab.sizing.strategies.vpa import VpaStrategy
from trimtab.sizing.strategies.vpa_checkpoint import import_checkpoint

MAX_REASON_LENGTH = 300

log = structlog.get_logger(__name__)


class CheckpointKey(NamedTuple):
    """The container that a checkpoint belongs to."""

    namespace: str
    vpa: str
    container: str


async def read_checkpoints(client: ObjectClient) -> dict[CheckpointKey, Object]:
    """Return all checkpoints in the cluster; empty if there are none or they may not be read."""
    try:
        found = await client.list_objects(VPA_CHECKPOINTS)
    except (NotFound, Forbidden) as error:
        log.info("vpa_checkpoints.not_found", reason=describe(error))
        return {}
    return {
        CheckpointKey(
            each["metadata"]["namespace"], each["spec"]["vpaObjectName"], each["spec"]["containerName"]
        ): each
        for each in found
        if each.get("spec", {}).keys() >= {"vpaObjectName", "containerName"}
    }


def restore_checkpoints(
    sizer: VpaStrategy, rows: Mapping[CheckpointKey, int], checkpoints: Mapping[CheckpointKey, Object]
) -> frozenset[CheckpointKey]:
    """Import the checkpoints of the containers in these rows, and return the keys of those imported."""
    return frozenset(
        key for key, row in rows.items() if key in checkpoints and _try_import(sizer, row, key, checkpoints)
    )


def _try_import(
    sizer: VpaStrategy, row: int, key: CheckpointKey, checkpoints: Mapping[CheckpointKey, Object]
) -> bool:
    try:
        import_checkpoint(sizer, row, checkpoints[key])
    except ValueError as error:
        reason = shorten(str(error), MAX_REASON_LENGTH)  # users write checkpoints, and it quotes them
        log.warning("vpa_checkpoints.invalid", checkpoint="/".join(key), reason=reason)
        return False
    return True
