"""Checkpoints go both ways between the real recommender and ours, and lose no more than its own restart does."""

import pytest

from harness.peers.vpa import GoVpa, Series
from sizing.strategies.test_vpa_checkpoint import DAYS, START, events, fresh, shown
from trimtab.sizing.strategies.vpa import VpaStrategy
from trimtab.sizing.strategies.vpa_checkpoint import export_status, import_checkpoint


def units(sizer: VpaStrategy, container: int = 1) -> list[list[float]]:
    sizes = sizer.recommend(0.0)
    return [
        [round(float(values[container]) * scale) for values in (b.lower, b.target, b.upper)]
        for b, scale in ((sizes.cpu, 1000), (sizes.memory, 1))
    ]


@pytest.mark.parametrize("seed", range(5))
def test_export_checkpoint_matches_the_vpa_recommender(go_vpa: GoVpa, seed: int) -> None:
    happened = events(seed)
    (answer,) = go_vpa.ask([Series(events=[*happened[:-1], {**happened[-1], "ask": True}])])
    theirs = answer["checkpoint"]
    ours = export_status(
        shown(fresh(), happened), 1, now=START + 100 * 86400
    )  # after the day of the last peak
    for field in ("cpuHistogram", "memoryHistogram"):
        assert ours[field]["bucketWeights"] == theirs[field]["bucketWeights"]
        assert ours[field]["totalWeight"] == pytest.approx(theirs[field]["totalWeight"], rel=1e-12)
        assert ours[field]["referenceTimestamp"] == theirs[field]["referenceTimestamp"]
    for field in ("version", "totalSamplesCount", "firstSampleStart", "lastSampleStart"):
        assert ours[field] == theirs[field]


@pytest.mark.parametrize("seed", range(5))
def test_import_checkpoint_matches_the_vpa_recommender(go_vpa: GoVpa, seed: int) -> None:
    happened, more = events(seed), [{**event, "t": event["t"] + DAYS * 86400} for event in events(seed + 50)]
    (first,) = go_vpa.ask([Series(events=[*happened[:-1], {**happened[-1], "ask": True}])])
    load = {"t": START, "load": first["checkpoint"]}
    (theirs,) = go_vpa.ask([Series(events=[load, *more[:-1], {**more[-1], "ask": True}])])
    sizer = fresh()
    import_checkpoint(sizer, 1, {"status": first["checkpoint"]})
    assert units(shown(sizer, more)) == [theirs["cpu"], theirs["memory"]]


def test_vpa_recommender_reads_exported_checkpoint(go_vpa: GoVpa) -> None:
    sizer = shown(fresh(), events(1))
    status = export_status(sizer, 1, now=START + 100 * 86400)
    (theirs,) = go_vpa.ask([Series(events=[{"t": START, "load": status, "ask": True}])])
    assert units(sizer) == [theirs["cpu"], theirs["memory"]]
