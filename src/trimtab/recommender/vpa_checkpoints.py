"""What VPA's own recommender had learned when we took over from it, so that nobody starts from nothing.

It keeps a VerticalPodAutoscalerCheckpoint for each container of each VPA. They are read once, at the first start; from
then on our own state is what counts. What cannot be read is left out: its container starts cold, as it would have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import structlog

from trimtab.kube.errors import Forbidden, NotFound, describe
from trimtab.kube.rest.client import Object
from trimtab.kube.rest.object_client import ObjectClient
from trimtab.kube.rest.resources import VPA_CHECKPOINTS
from trimtab.sizing.strategies.vpa import VpaStrategy
from trimtab.sizing.strategies.vpa_checkpoint import import_checkpoint

log = structlog.get_logger(__name__)


class CheckpointKey(NamedTuple):
    """Which container a checkpoint is about."""

    namespace: str
    vpa: str
    container: str


async def read_checkpoints(client: ObjectClient) -> dict[CheckpointKey, Object]:
    """All checkpoints of the recommender that was here before; none where there are none, or none may be read."""
    try:
        found = await client.list_objects(VPA_CHECKPOINTS)
    except (NotFound, Forbidden) as error:
        log.info("checkpoints.none", reason=describe(error))
        return {}
    return {
        CheckpointKey(
            one["metadata"]["namespace"], one["spec"]["vpaObjectName"], one["spec"]["containerName"]
        ): one
        for one in found
        if one.get("spec", {}).keys() >= {"vpaObjectName", "containerName"}
    }


def restore_checkpoints(
    sizer: VpaStrategy, rows: Mapping[CheckpointKey, int], checkpoints: Mapping[CheckpointKey, Object]
) -> frozenset[CheckpointKey]:
    """Let a strategy know what VPA knew of the containers in these rows; those that it now knows of."""
    return frozenset(
        key for key, row in rows.items() if key in checkpoints and _try_import(sizer, row, key, checkpoints)
    )


def _try_import(
    sizer: VpaStrategy, row: int, key: CheckpointKey, checkpoints: Mapping[CheckpointKey, Object]
) -> bool:
    try:
        import_checkpoint(sizer, row, checkpoints[key])
    except ValueError as error:
        log.warning("checkpoints.ignored", checkpoint="/".join(key), reason=describe(error))
        return False
    return True
