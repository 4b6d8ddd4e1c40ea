"""Properties of every workload generator, and of each one."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.errors import TrimtabError
from trimtab.lab.workloads import GENERATORS, GeneratedWorkload, generate

DAY = 86400.0
DRAWN = tuple(name for name in GENERATORS.names() if name != "imported")
BRIEF: dict[str, Any] = {"step": 300.0, "duration": 2 * DAY}


def _same(one: GeneratedWorkload, other: GeneratedWorkload) -> bool:
    return all(
        np.array_equal(getattr(one, field), getattr(other, field)) for field in ("cpu", "memory", "requests")
    )


def test_generators_include_all_types() -> None:
    assert set(GENERATORS.names()) >= {
        *("step", "sinusoidal", "low_high", "arabesque", "azure", "alibaba", "borg", "diurnal_web"),
        *("batch", "memory_leak", "jvm", "flash_crowd", "imported"),
    }


@given(
    name=st.sampled_from(DRAWN),
    count=st.integers(1, 20),
    seed=st.integers(0, 2**32),
    steps=st.integers(1, 300),
    step=st.sampled_from([1.0, 15.0, 60.0, 300.0, 3600.0]),
)
@settings(max_examples=120)
def test_generators_return_finite_deterministic_demand(
    name: str, count: int, seed: int, steps: int, step: float
) -> None:
    made = generate(name, count=count, seed=seed, step=step, duration=steps * step)
    assert made.cpu.shape == made.memory.shape == (count, steps)
    assert (made.series, made.steps, made.duration) == (count, steps, steps * step)
    for curve in (made.cpu, made.memory, *([] if made.requests is None else [made.requests])):
        assert curve.shape == (count, steps)
        assert np.isfinite(curve).all()
        assert (curve >= 0).all()
    assert _same(made, generate(name, count=count, seed=seed, step=step, duration=steps * step))


@pytest.mark.parametrize("name", DRAWN)
def test_generators_differ_by_seed(name: str) -> None:
    assert not _same(generate(name, seed=1, **BRIEF), generate(name, seed=2, **BRIEF))


def test_generator_trace_has_a_row_for_each_step_from_a_monday() -> None:
    made = generate("step", count=3, **BRIEF)
    trace = made.to_trace()
    assert trace.cpu.shape == (576, 3)
    assert np.array_equal(trace.memory[:, 1], made.memory[1])
    assert trace.start / DAY % 7 == 4  # the first day of all time was a Thursday


def test_regular_steps_change_exactly_when_their_time_is_up() -> None:
    made = generate("step", regular=True, hold=3600.0, noise=0.0, **BRIEF)
    changes = np.flatnonzero(np.diff(made.cpu[0]))
    assert set((changes + 1) % 12) == {0}


def test_low_high_has_two_values_and_is_high_for_its_share() -> None:
    made = generate("low_high", count=200, noise=0.0, spread=0.0, high_share=0.3, seed=1)
    assert set(np.unique(made.cpu)) == {0.1, 1.0}
    assert (made.cpu == 1.0).mean() == pytest.approx(0.3, abs=0.03)


def test_generator_sine_swings_around_its_level() -> None:
    made = generate(
        "sinusoidal", noise=0.0, spread=0.0, cores=2.0, amplitude=0.5, in_phase=True, duration=DAY
    )
    assert made.cpu.mean() == pytest.approx(2.0)
    assert (made.cpu.min(), made.cpu.max()) == (pytest.approx(1.0, abs=1e-3), pytest.approx(3.0, abs=1e-3))


def test_generator_diurnal_web_rests_at_night_and_on_weekends() -> None:
    made = generate("diurnal_web", count=50, seed=2)
    assert made.requests is not None
    hours = made.requests.reshape(50, 7, 24, 12).mean(axis=(0, 3))
    assert hours[:5, 13:16].mean() > 4 * hours[:5, 1:4].mean()
    assert hours[5:].mean() == pytest.approx(0.5 * hours[:5].mean(), rel=0.05)
    assert np.corrcoef(made.requests[0], made.cpu[0])[0, 1] > 0.99


def test_generator_batch_is_idle_between_runs() -> None:
    made = generate("batch", count=50, seed=2)
    busy = made.cpu > 0.5 * made.cpu.max(axis=1, keepdims=True)
    assert 0.03 < busy.mean() < 0.12
    assert made.memory[busy].mean() > 5 * made.memory[~busy].mean()


def test_generator_leak_grows_until_restarted() -> None:
    made = generate("memory_leak", spread=0.0, seed=2, mib=100.0, most_mib=500.0)
    decreases = np.diff(made.memory[0])
    decreases = decreases[decreases < 0]
    assert 1 <= len(decreases) <= 4
    assert (decreases < -300 * 2**20).all()


def test_generator_heap_is_a_sawtooth_or_never_decreases() -> None:
    made = generate("jvm", seed=3)
    decreases = np.diff(made.memory[0]) < 0
    assert 50 < decreases.sum() < 1000
    assert made.cpu[0, 1:][decreases].mean() > 2 * made.cpu[0, 1:][~decreases].mean()
    assert (np.diff(generate("jvm", seed=3, returns=False).memory[0]) >= 0).all()


def test_generator_crowd_rises_fast_and_decays_slowly() -> None:
    made = generate("flash_crowd", crowds=1, noise=0.0, spread=0.0, magnitude_spread=0.0, seed=5)
    load = made.cpu[0] / made.cpu[0].min()
    height = int(load.argmax())
    assert load[height] == pytest.approx(10, rel=0.02)
    assert load[height - 6] == pytest.approx(1, rel=0.05)
    assert load[height + 60] == pytest.approx(1 + 9 / np.e, rel=0.05)


def test_generator_arabesque_holds_its_data_between_epochs() -> None:
    made = generate("arabesque", noise=0.0, spread=0.0, night_share=1.0, seed=1)
    training = made.memory[0] == made.memory.max()
    assert set(np.unique(made.cpu[0][training])) == {1.0, 4.0}
    assert made.memory.min() < 0.1 * made.memory.max()


def test_generator_replay_bridges_gaps(tmp_path: Path) -> None:
    recording = tmp_path / "usage.csv"
    rows = [("a", 0, 1, 10), ("a", 60, 2, ""), ("a", 180, 4, 40), ("b", 60, 5, ""), ("b", 180, 6, "")]
    recording.write_text(
        "series,t_seconds,cpu_cores,mem_bytes\n" + "".join(",".join(map(str, row)) + "\n" for row in rows)
    )
    made = generate("imported", count=2, path=recording, step=60.0, mib=1.0)
    assert made.cpu.tolist() == [[1, 2, 2, 4], [5, 5, 5, 6]]
    assert made.memory.tolist() == [[10, 10, 10, 40], [2**20] * 4]
    with pytest.raises(TrimtabError, match=r"count 3: .* has 2 series"):
        generate("imported", count=3, path=recording)


@pytest.mark.parametrize(
    ("name", "given_", "message"),
    [
        ("steps", {}, "workload type 'steps' is not known; there are: .*step"),
        ("step", {"hold": -1}, "workload type step: hold"),
        ("step", {"colour": 1}, "workload type step: colour"),
        ("step", {"duration": 100.0}, "duration is shorter than a step"),
        ("step", {"step": 1.0, "duration": 1e9}, "do not fit into memory"),
        ("step", {"duration": math.inf}, "workload type step: duration: input should be a finite number"),
        ("batch", {"period": 1e-6}, "workload type batch: period: must be at least 1"),
        (
            "step",
            {"hold": 1.0, "regular": True, "step": 1e7, "duration": 1e9},
            "workload type step: 1 series of 990,000,001 draws do not fit into memory; use a longer step",
        ),
        ("arabesque", {"step": 1e297, "duration": 1e300}, "arabesque: duration: must be at most"),
        ("diurnal_web", {"rate": 1e308}, "larger than a number can represent"),
        ("batch", {"at": 1e300}, "larger than a number can represent"),
        ("borg", {"mean_cores": "1,2"}, "workload type borg: mean_cores"),
    ],
)
def test_generator_rejects_unusable_settings_by_name(name: str, given_: dict[str, Any], message: str) -> None:
    with pytest.raises(TrimtabError, match=message):
        generate(name, **given_)
