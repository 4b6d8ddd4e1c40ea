"""Build VerticalPodAutoscalerCheckpoints as the VPA recommender writes them."""

from __future__ import annotations

from typing import Any

from trimtab.sizing.strategies.vpa import VpaStrategy
from trimtab.sizing.strategies.vpa_checkpoint import export_status


def export_checkpoint(
    sizer: VpaStrategy, container: int, *, now: float, vpa_name: str, container_name: str
) -> dict[str, Any]:
    """Return the object that the recommender would write for this container."""
    return {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscalerCheckpoint",
        "metadata": {"name": f"{vpa_name}-{container_name}"},
        "spec": {"vpaObjectName": vpa_name, "containerName": container_name},
        "status": export_status(sizer, container, now=now),
    }
