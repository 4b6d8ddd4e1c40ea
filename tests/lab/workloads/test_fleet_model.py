"""The fleets that were fitted have the statistics that their numbers name."""

import numpy as np
import pytest

from trimtab.lab.workloads import GENERATORS, generate
from trimtab.lab.workloads.features import Features

FLEETS = ("alibaba", "azure", "borg")


@pytest.mark.parametrize("name", FLEETS)
def test_fleet_model_has_the_published_median(name: str) -> None:
    error = GENERATORS.parse_settings(name, {})
    made = generate(name, count=500, seed=11)
    found = Features.from_series(made.cpu, made.memory, step=made.step)
    assert np.median(found.mean_cores) == pytest.approx(error.mean_cores[3], rel=0.2)
    assert np.median(found.mean_mib) == pytest.approx(error.mean_mib[3], rel=0.2)
    assert np.median(found.memory_variability) == pytest.approx(
        error.memory_variability[3], rel=0.4, abs=0.01
    )
    assert 0.1 < np.median(found.variability) < 1.2
    assert np.median(found.next_step) > 0.4
    assert np.nanmedian(found.next_day) > 0.1


def test_fleet_model_concentrates_usage_in_few_tasks() -> None:
    made = generate("borg", count=3000, seed=3, duration=86400.0)
    means = np.sort(made.cpu.mean(axis=1))[::-1]
    assert means[:30].sum() > 0.5 * means.sum()


def test_gaps_are_passed_over_when_a_fleet_is_measured() -> None:
    made = generate("alibaba", count=5, seed=1)
    cpu, memory = made.cpu.copy(), made.memory.copy()
    cpu[:, 100:110] = memory[:, 100:110] = np.nan
    whole, gapped = (
        Features.from_series(*arrays, step=made.step) for arrays in ((made.cpu, made.memory), (cpu, memory))
    )
    assert gapped.variability == pytest.approx(whole.variability, rel=0.1)
    assert gapped.next_day == pytest.approx(whole.next_day, abs=0.1)


def test_fleet_model_leaves_out_unknown_statistics() -> None:
    flat = Features.from_series(np.ones((1, 100)), np.ones((1, 100)), step=300.0)
    assert np.isnan(flat.next_step).all()
    assert np.isnan(flat.next_day).all()
    assert flat.variability == [0.0]
