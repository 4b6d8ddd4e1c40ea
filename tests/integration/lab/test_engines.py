"""Wherever replays are made, and episodes lived through, their results are the same to the last bit."""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np
import pytest

from trimtab.errors import TrimtabError
from trimtab.lab.backtest import BacktestSchedule, generate_sample_trace
from trimtab.lab.environments import EnvironmentConfig
from trimtab.lab.job import ORACLE, BacktestJob, Engine
from trimtab.lab.local_engine import run_on_cores
from trimtab.lab.ray_engine import RayEngine, Workers, connect_ray_workers
from trimtab.lab.ray_engine import run_locally as in_this_process
from trimtab.lab.scores import Scores
from trimtab.lab.training.rollouts import Rollout, RolloutShard, run_shard

TRACES = {"one": generate_sample_trace(12), "two": generate_sample_trace(8, seed=2)}
RUNS = [
    BacktestJob(source, *choice)
    for source in TRACES
    for choice in (("trimtab", {"cpu_risk": "0.01"}), ("trimtab", {}), ("vpa", {}), (ORACLE, {}))
]
SCHEDULE = BacktestSchedule(update=6 * 3600.0)


def made(engine: Engine, runs: Sequence[BacktestJob] = RUNS) -> tuple[list[Scores], Counter[int]]:
    steps: Counter[int] = Counter()
    results = dict(engine(TRACES, runs, SCHEDULE, advance=lambda run, more: steps.update({run: more})))
    return [results[number] for number in range(len(runs))], steps


def assert_same(ours: Sequence[Scores], theirs: Sequence[Scores]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert one.containers == other.containers
        for field in fields(Scores):
            if field.name != "containers":
                np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name))


@pytest.fixture(scope="module")
def here() -> list[Scores]:
    scores, steps = made(run_on_cores)
    assert steps == {number: TRACES[run.recording].steps for number, run in enumerate(RUNS)}
    return scores


def test_local_engine_returns_the_same_results_with_several_processes(
    here: list[Scores], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    scores, steps = made(partial(run_on_cores, small_work=0))
    assert_same(scores, here)
    assert steps == {number: TRACES[run.recording].steps for number, run in enumerate(RUNS)}


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1"])
def test_ray_engine_does_not_wait_for_an_absent_cluster(address: str) -> None:
    pytest.importorskip("ray")
    with pytest.raises(TrimtabError, match=f"--ray-address {address}: cannot connect: Connection refused"):
        made(RayEngine(address))


def test_ray_engine_names_the_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        TrimtabError, match=r"--engine ray: ray is not installed; run: pip install 'trimtab\[ray\]'"
    ):
        made(RayEngine())


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers[Any, Any]]:
    """A Ray of this machine, which is a dozen processes: one for all."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'trimtab[ray]'")
    with connect_ray_workers("local", cpus=2) as found:
        yield found


@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("default")  # Ray's own
def test_ray_engine_runs_shards_like_the_local_engine(workers: Workers[Any, Any]) -> None:
    shards = [
        RolloutShard(
            agent=None,
            spread=np.ones(2),
            containers=2,
            seed=(seed,),
            config=EnvironmentConfig(hours=2, warm_up=2),
        )
        for seed in range(2)
    ]
    away = Rollout.concatenate(workers(run_shard, shards))
    for one, other in zip(Rollout.concatenate(in_this_process(run_shard, shards)), away, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("default")  # Ray's own
@pytest.mark.usefixtures("workers")
def test_ray_engine_returns_the_same_results_as_the_local_engine(here: list[Scores]) -> None:
    few = [number for number, run in enumerate(RUNS) if run.strategy != "vpa"]
    scores, steps = made(RayEngine(), [RUNS[number] for number in few])
    assert_same(scores, [here[number] for number in few])
    assert steps.total() == sum(TRACES[RUNS[number].recording].steps for number in few)
