"""Checkpoints go both ways between the real recommender and ours, and lose no more than its own restart does."""

from typing import Any

import numpy as np
import pytest

from trimtab.sizing import strategy
from trimtab.sizing.strategies.vpa import VpaStrategy
from trimtab.sizing.strategies.vpa_checkpoint import export_checkpoint, export_status, import_checkpoint

START = 1_700_000_000
DAYS = 5


def events(seed: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    return [
        {"t": START + step * 600, "cpu": rng.lognormal(-1, 0.7), "memory": rng.lognormal(20, 0.4)}
        for step in range(DAYS * 144)
    ]


def fresh() -> VpaStrategy:
    sizer = strategy("vpa", containers=2)
    assert isinstance(sizer, VpaStrategy)
    return sizer


def shown(sizer: VpaStrategy, happened: list[dict[str, Any]], container: int = 1) -> VpaStrategy:
    cpu, memory = np.full(2, np.nan), np.full(2, np.nan)
    for event in happened:
        cpu[container], memory[container] = event["cpu"], event["memory"]
        sizer.observe(event["t"], cpu, memory)
    return sizer


def test_export_checkpoint_leaves_out_the_peak_of_the_present_day() -> None:
    sizer = shown(fresh(), events(1)[: 144 * 2])
    during = export_status(sizer, 1, now=START + 2 * 86400 - 600)["memoryHistogram"]
    after = export_status(sizer, 1, now=START + 9 * 86400)["memoryHistogram"]
    assert len(during["bucketWeights"]) < len(after["bucketWeights"])
    assert during["totalWeight"] < after["totalWeight"]


def test_export_checkpoint_without_history_is_empty_and_readable() -> None:
    checkpoint = export_checkpoint(fresh(), 0, now=START, vpa_name="shop", container_name="web")
    assert checkpoint["metadata"]["name"] == "shop-web"
    sizer = shown(fresh(), events(1))
    import_checkpoint(sizer, 1, checkpoint)
    assert np.isnan(sizer.recommend(0.0).cpu.target).all()


def good() -> dict[str, Any]:
    return export_checkpoint(
        shown(fresh(), events(1)), 1, now=START + 9e6, vpa_name="shop", container_name="web"
    )


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"version": "v2"}, "status.version is 'v2'; only 'v3' can be read"),
        ({"firstSampleStart": "yesterday"}, "firstSampleStart is 'yesterday'"),
        ({"cpuHistogram": {"bucketWeights": {"176": 1}, "totalWeight": 1}}, "has bucket 176; there are 176"),
        (
            {"cpuHistogram": {"bucketWeights": {"1": -1}, "totalWeight": 1}},
            "bucketWeights.1 is -1; it must be",
        ),
        ({"cpuHistogram": {"bucketWeights": {"-1": 1}, "totalWeight": 1}}, "has bucket -1; there are 176"),
        ({"cpuHistogram": {"bucketWeights": {"1": "few"}, "totalWeight": 1}}, "bucketWeights.1 is 'few'"),
        (
            {"cpuHistogram": {"bucketWeights": {"1": [1]}, "totalWeight": 1}},
            "bucketWeights.1 is .1.; it must",
        ),
        (
            {"cpuHistogram": {"bucketWeights": [1, 2], "totalWeight": 1}},
            "bucketWeights is .1, 2., which is no",
        ),
        ({"cpuHistogram": "empty"}, "status.cpuHistogram is 'empty', which is no object"),
        ({"memoryHistogram": {"totalWeight": -1.0}}, "totalWeight is -1.0"),
        ({"memoryHistogram": {"totalWeight": "heavy"}}, "totalWeight is 'heavy'"),
        ({"totalSamplesCount": -5}, "status.totalSamplesCount is -5"),
        ({"totalSamplesCount": 10**30}, "status.totalSamplesCount is 10000"),
        ({"lastSampleStart": None}, "firstSampleStart or lastSampleStart is missing"),
    ],
)
def test_import_checkpoint_rejects_invalid_content_without_change(change: dict[str, Any], why: str) -> None:
    sizer = shown(fresh(), events(2))
    before = sizer.state()
    checkpoint = good()
    checkpoint["status"] |= change
    with pytest.raises(ValueError, match=why):
        import_checkpoint(sizer, 1, checkpoint)
    assert sizer.state() == before
