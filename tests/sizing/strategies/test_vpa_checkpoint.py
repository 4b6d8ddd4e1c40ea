"""Checkpoints go both ways between the real recommender and ours, and lose no more than its own restart does."""

from typing import Any

import numpy as np
import pytest

from harness.builders.vpa_checkpoints import export_checkpoint, export_status
from harness.peers.vpa import RecordedVpa
from sizing.strategies.vpa_series import CHECKPOINT_START as START
from sizing.strategies.vpa_series import SEEDS, SIZES, after_restart, ask_at_the_end
from sizing.strategies.vpa_series import days_of_usage as events
from trimtab.sizing import strategy
from trimtab.sizing.strategies.vpa import VpaStrategy
from trimtab.sizing.strategies.vpa_checkpoint import import_checkpoint


def fresh() -> VpaStrategy:
    sizer = strategy("vpa", containers=2)
    assert isinstance(sizer, VpaStrategy)
    return sizer


def observe_series(sizer: VpaStrategy, happened: list[dict[str, Any]], container: int = 1) -> VpaStrategy:
    cpu, memory = np.full(2, np.nan), np.full(2, np.nan)
    for event in happened:
        cpu[container], memory[container] = event["cpu"], event["memory"]
        sizer.observe(event["t"], cpu, memory)
    return sizer


def test_export_checkpoint_leaves_out_the_peak_of_the_present_day() -> None:
    sizer = observe_series(fresh(), events(1)[: 144 * 2])
    during = export_status(sizer, 1, now=START + 2 * 86400 - 600)["memoryHistogram"]
    after = export_status(sizer, 1, now=START + 9 * 86400)["memoryHistogram"]
    assert len(during["bucketWeights"]) < len(after["bucketWeights"])
    assert during["totalWeight"] < after["totalWeight"]


def test_export_checkpoint_without_history_is_empty_and_readable() -> None:
    checkpoint = export_checkpoint(fresh(), 0, now=START, vpa_name="shop", container_name="web")
    assert checkpoint["metadata"]["name"] == "shop-web"
    sizer = observe_series(fresh(), events(1))
    import_checkpoint(sizer, 1, checkpoint)
    assert np.isnan(sizer.recommend(0.0).cpu.target).all()


def good() -> dict[str, Any]:
    return export_checkpoint(
        observe_series(fresh(), events(1)), 1, now=START + 9e6, vpa_name="shop", container_name="web"
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
        ({"cpuHistogram": "empty"}, "status.cpuHistogram is 'empty', which is not an object"),
        ({"memoryHistogram": {"totalWeight": -1.0}}, "totalWeight is -1.0"),
        ({"memoryHistogram": {"totalWeight": "heavy"}}, "totalWeight is 'heavy'"),
        ({"totalSamplesCount": -5}, "status.totalSamplesCount is -5"),
        ({"totalSamplesCount": 10**30}, "status.totalSamplesCount is 10000"),
        (
            {
                "cpuHistogram": {
                    "bucketWeights": {"1": 1e-320},
                    "totalWeight": 1e299,
                    "referenceTimestamp": "2026-11-01T00:00:00Z",
                }
            },
            "totalWeight is 1e\\+299, too much for its bucketWeights",
        ),
        ({"lastSampleStart": None}, "firstSampleStart or lastSampleStart is missing"),
    ],
)
def test_import_checkpoint_rejects_invalid_content_without_change(change: dict[str, Any], why: str) -> None:
    sizer = observe_series(fresh(), events(2))
    before = sizer.state()
    checkpoint = good()
    checkpoint["status"] |= change
    with pytest.raises(ValueError, match=why):
        import_checkpoint(sizer, 1, checkpoint)
    assert sizer.state() == before


def units(sizer: VpaStrategy, container: int = 1) -> list[list[float]]:
    sizes = sizer.recommend(0.0)
    return [
        [round(float(values[container]) * scale) for values in (b.lower, b.target, b.upper)]
        for b, scale in ((sizes.cpu, 1000), (sizes.memory, 1))
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_export_checkpoint_matches_the_vpa_recommender(recorded_vpa: RecordedVpa, seed: int) -> None:
    happened = events(seed)
    (answer,) = recorded_vpa.ask(ask_at_the_end(happened), "checkpoint")
    theirs = answer["checkpoint"]
    ours = export_status(
        observe_series(fresh(), happened), 1, now=START + 100 * 86400
    )  # after the day of the last peak
    for field in ("cpuHistogram", "memoryHistogram"):
        assert ours[field]["bucketWeights"] == theirs[field]["bucketWeights"]
        assert ours[field]["totalWeight"] == pytest.approx(theirs[field]["totalWeight"], rel=1e-12)
        assert ours[field]["referenceTimestamp"] == theirs[field]["referenceTimestamp"]
    for field in ("version", "totalSamplesCount", "firstSampleStart", "lastSampleStart"):
        assert ours[field] == theirs[field]


@pytest.mark.parametrize("seed", SEEDS)
def test_import_checkpoint_matches_the_vpa_recommender(recorded_vpa: RecordedVpa, seed: int) -> None:
    (first,) = recorded_vpa.ask(ask_at_the_end(events(seed)), "checkpoint")
    more, asked = after_restart(seed, first["checkpoint"])
    (theirs,) = recorded_vpa.ask(asked, *SIZES)
    sizer = fresh()
    import_checkpoint(sizer, 1, {"status": first["checkpoint"]})
    assert units(observe_series(sizer, more)) == [theirs["cpu"], theirs["memory"]]
