"""Checkpoints of the VPA recommender, to start from its state and to export ours.

A VerticalPodAutoscalerCheckpoint (v3) holds two histograms with weights scaled so that the largest is 10000.
The precision lost is what the recommender itself loses when it restarts. The memory peak of the current day
is left out of a checkpoint, as in the recommender: that day would otherwise count twice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import numpy as np

from trimtab.sizing.state import Floats
from trimtab.sizing.strategies.vpa import VpaStrategy

VERSION = "v3"
MAX_SAMPLES = 2.0**53
"""The most samples of a checkpoint: as far as a float counts exactly."""


def import_checkpoint(sizer: VpaStrategy, container: int, checkpoint: Mapping[str, Any]) -> None:
    """Replace the state of one container by a checkpoint of the recommender."""
    status = checkpoint.get("status")
    if not isinstance(status, Mapping):
        raise ValueError("checkpoint: status is missing")  # noqa: TRY004 - one kind of refusal for bad bytes
    version = status.get("version")
    if version != VERSION:
        raise ValueError(f"checkpoint: status.version is {version!r}; only {VERSION!r} can be read")
    samples = _get_number(status, "totalSamplesCount", "status", most=MAX_SAMPLES)
    loads = [
        (
            usage,
            *_decode_weights(
                _get_mapping(status, field, "status"), f"status.{field}", usage.buckets.ends.size
            ),
        )
        for usage, field in ((sizer.cpu, "cpuHistogram"), (sizer.memory, "memoryHistogram"))
    ]
    first, last = (_get_time(status, field) for field in ("firstSampleStart", "lastSampleStart"))
    if samples and not math.isfinite(last - first):
        raise ValueError(
            "checkpoint: firstSampleStart or lastSampleStart is missing, though there are samples"
        )
    for usage, weights, total, reference in loads:
        usage.load_row(container, weights, total=total, reference=reference)
    sizer.history.samples[container] = int(samples)
    sizer.history.first[container] = first if samples else 0.0
    sizer.history.last[container] = last
    sizer.peaks.last[container] = sizer.peaks.end[container] = -math.inf
    sizer.peaks.used[container] = sizer.peaks.oom[container] = 0.0


def _decode_weights(mapping: Mapping[str, Any], field: str, buckets: int) -> tuple[Floats, float, float]:
    """Return the weights of all buckets, their sum as stated, and their reference."""
    total, weights = _get_number(mapping, "totalWeight", field), np.zeros(buckets)
    bucket_weights = _get_mapping(mapping, "bucketWeights", field)
    for bucket in bucket_weights:
        if not (bucket.isdecimal() and int(bucket) < buckets):
            raise ValueError(f"checkpoint: {field}.bucketWeights has bucket {bucket}; there are {buckets}")
        weights[int(bucket)] = _get_number(bucket_weights, bucket, f"{field}.bucketWeights")
    summed = weights.sum()
    reference = _get_time(mapping, "referenceTimestamp")
    if not summed or math.isinf(reference):
        return np.zeros(buckets), 0.0, -math.inf
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = weights * (total / summed)
    if not np.isfinite(scaled).all():
        raise ValueError(f"checkpoint: {field}.totalWeight is {total:g}, too much for its bucketWeights")
    return scaled, total, reference


def _get_mapping(mapping: Mapping[str, Any], field: str, where: str) -> Mapping[str, Any]:
    found = mapping.get(field) or {}
    if not isinstance(found, Mapping):
        raise ValueError(f"checkpoint: {where}.{field} is {found!r}, which is not an object")  # noqa: TRY004 - as above
    return found


def _get_number(mapping: Mapping[str, Any], field: str, where: str, *, most: float = 1e300) -> float:
    """Return a number that is not negative; 0 if it is missing."""
    found = mapping.get(field) or 0
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found < most:
        raise ValueError(
            f"checkpoint: {where}.{field} is {found!r}; it must be a number that is not negative"
        )
    return float(found)


def _get_time(mapping: Mapping[str, Any], field: str) -> float:
    stamp = mapping.get(field)
    if stamp is None:
        return -math.inf
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except (TypeError, ValueError):
        raise ValueError(f"checkpoint: {field} is {stamp!r}, which is not a time") from None
