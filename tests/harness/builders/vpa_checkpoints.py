"""Build VerticalPodAutoscalerCheckpoints as the VPA recommender writes them."""

from __future__ import annotations

from typing import Any

import numpy as np

from trimtab.api.fields import format_time
from trimtab.sizing.state import Floats
from trimtab.sizing.stats.histogram import EPSILON, find_bucket
from trimtab.sizing.strategies.vpa import MEMORY_BUCKETS, VpaStrategy
from trimtab.sizing.strategies.vpa_checkpoint import VERSION

MAX_BUCKET_WEIGHT = 10000


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


def export_status(sizer: VpaStrategy, container: int, *, now: float) -> dict[str, Any]:
    """Return the state of one container as the status of a checkpoint."""
    peaks = sizer.peaks
    weights, total = sizer.memory.row_weights(container), float(sizer.memory.rows.total[container])
    end, reference = float(peaks.end[container]), float(sizer.memory.rows.reference[container])
    if now < end:
        bucket = find_bucket(MEMORY_BUCKETS, max(peaks.used[container], peaks.oom[container]))
        weight = 2.0 ** ((end - reference) / sizer.settings.half_life)
        weights[bucket] = _subtract_weight(float(weights[bucket]), weight)
        total = _subtract_weight(total, weight)
    history = sizer.history
    seen = int(history.samples[container])
    cpu = sizer.cpu
    return {
        "version": VERSION,
        "lastUpdateTime": format_time(now),
        "firstSampleStart": format_time(float(history.first[container])) if seen else None,
        "lastSampleStart": format_time(float(history.last[container])) if seen else None,
        "totalSamplesCount": seen,
        "cpuHistogram": _encode_histogram(
            cpu.row_weights(container), float(cpu.rows.total[container]), float(cpu.rows.reference[container])
        ),
        "memoryHistogram": _encode_histogram(weights, total, reference),
    }


def _subtract_weight(weight: float, taken: float) -> float:
    return weight - taken if weight - taken >= EPSILON else 0.0


def _encode_histogram(weights: Floats, total: float, reference: float) -> dict[str, Any]:
    full = np.flatnonzero(weights >= EPSILON)
    if not full.size:
        return {"referenceTimestamp": None, "bucketWeights": {}, "totalWeight": 0.0}
    kept = weights[full[0] : full[-1] + 1]
    scaled = np.floor(kept * (MAX_BUCKET_WEIGHT / kept.max()) + 0.5).astype(int)
    return {
        "referenceTimestamp": format_time(reference),
        "bucketWeights": {str(full[0] + k): int(w) for k, w in enumerate(scaled) if w > 0},
        "totalWeight": total,
    }
