"""Learners get better at what they are asked for, and a run that was ended goes on as if it had not been."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from trimtab.errors import TrimtabError
from trimtab.lab.backtest import generate_sample_trace
from trimtab.lab.environments import (
    EnvironmentConfig,
    GeneratedDemand,
    MixedDemand,
    RecordedDemand,
    RequestRules,
    Weights,
)
from trimtab.lab.neural.actions import ACTION_SIZE, OBSERVATION_SIZE
from trimtab.lab.neural.network import predict
from trimtab.lab.training import jax_network, loop, provenance
from trimtab.lab.training.base import Learner
from trimtab.lab.training.base_agent import RolloutConfig
from trimtab.lab.training.base_agent import to_numpy_network as for_workers
from trimtab.lab.training.dataset import SAMPLES, build_examples
from trimtab.lab.training.forecaster import ForecasterConfig, ForecasterLearner, predict_quantiles
from trimtab.lab.training.model_card import ModelCard
from trimtab.lab.training.ppo import PpoConfig, PpoLearner, _compute_advantages
from trimtab.lab.training.rollouts import RolloutShard, choose_actions
from trimtab.lab.training.sac import SacConfig, SacLearner, sample_action
from trimtab.lab.training.sources import (
    HELD_OUT_FAMILIES,
    KNOWN_RECORDINGS,
    RELATED_FAMILIES,
    TRAINED_FAMILIES,
    build_training_demand,
    build_training_traces,
)
from trimtab.lab.workloads import GENERATORS
from trimtab.lab.workloads.fleet_model import list_fitted_recordings
from trimtab.sizing import strategy

STAGE = RolloutConfig(
    course=EnvironmentConfig(demand=GeneratedDemand(types=("sinusoidal",)), hours=6),
    containers=64,
    warm_ups=(2, 12),
)


def forecaster() -> ForecasterLearner:
    plan = ForecasterConfig(hidden=8, batch=256, steps=8, examples=2000, updates=6)
    return ForecasterLearner([generate_sample_trace(8)], seed=1, config=plan)


def ppo() -> PpoLearner:
    return PpoLearner(seed=1, config=PpoConfig(stage=STAGE, hidden=8, batch=128, rate=5e-3, updates=10))


def sac() -> SacLearner:
    return SacLearner(seed=1, config=SacConfig(stage=STAGE, hidden=8, steps=20, batch=128, rate=5e-3))


@pytest.mark.parametrize(("make", "updates"), [(ppo, 8), (sac, 6)], ids=["ppo", "sac"])
def test_training_improves_and_resumes(make: Callable[[], Learner], updates: int, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    steady = make()
    figures = loop.train(steady, whole, updates=updates, checkpoint_every=2)
    objective = [row[steady.objective] for row in figures]
    better = -1.0 if steady.lower_is_better else 1.0
    assert better * np.mean(objective[-2:]) > better * np.mean(objective[:2])

    ended = make()
    loop.train(ended, parts, updates=2)
    again = make()
    assert loop.train(again, parts, updates=updates, checkpoint_every=2) == figures
    assert list(again.arrays()) == list(steady.arrays())
    for one, other in zip(steady.arrays().values(), again.arrays().values(), strict=True):
        np.testing.assert_array_equal(one, other)
    loaded = list(csv.DictReader((parts / loop.FIGURES).read_text().splitlines()))
    assert [float(row["update"]) for row in loaded] == list(range(1, updates + 1))
    assert list(whole.glob("events.out.tfevents.*"))


KILLED = """
    import os, signal, sys
    from pathlib import Path
    from integration.lab.training.test_training import forecaster
    from trimtab.lab.training import loop

    def stop_after_three(done, figures):
        if done == 3:
            os.kill(os.getpid(), signal.SIGKILL)

    loop.train(forecaster(), Path(sys.argv[1]), updates=6, checkpoint_every=2, on_update=stop_after_three)
"""


def test_training_resumes_a_killed_run_bit_for_bit(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path / "killed")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[3]), *sys.path])},
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL
    again, steady = forecaster(), forecaster()
    figures = loop.train(again, tmp_path / "killed", updates=6)
    assert loop.train(steady, tmp_path / "whole", updates=6) == figures
    assert figures[-1][steady.objective] < figures[0][steady.objective]
    for one, other in zip(steady.export_weights().values(), again.export_weights().values(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_training_rejects_the_checkpoint_of_another_learner(tmp_path: Path) -> None:
    loop.train(forecaster(), tmp_path, updates=1)
    with pytest.raises(
        TrimtabError,
        match=r"was started with other data or settings \(learner: forecaster then, ppo now;.* more\)",
    ):
        loop.train(ppo(), tmp_path, updates=1)
    (tmp_path / loop.FIGURES).unlink()
    with pytest.raises(TrimtabError, match=r"figures\.csv.*name another folder"):
        loop.train(forecaster(), tmp_path, updates=1)
    for nonsense in (b"no", b""):
        (tmp_path / loop.CHECKPOINT).write_bytes(nonsense)
        with pytest.raises(TrimtabError, match="name another folder"):
            loop.train(forecaster(), tmp_path, updates=1)


def test_train_resumes_a_run_that_an_earlier_version_started(tmp_path: Path) -> None:
    loop.train(sac(), tmp_path, updates=1)
    path = tmp_path / provenance.RUN_FILE
    text = path.read_text()
    for former, today in provenance.FORMER_KINDS.items():
        text = text.replace(f'"kind":"{today}"', f'"kind":"{former}"').replace(
            f'"kind": "{today}"', f'"kind": "{former}"'
        )
    assert text != path.read_text(), "the run names no class that was renamed"
    path.write_text(text)
    assert len(loop.train(sac(), tmp_path, updates=2)) == 2


def test_training_rejects_a_run_with_other_settings(
    tmp_path: Path,
) -> None:
    loop.train(sac(), tmp_path, updates=1)
    course = STAGE.course
    others = {
        "course.weights.oom: 20.0 then, 5.0 now": replace(course, weights=Weights(oom=5.0)),
        "course.rules.cpu_limit: inf then, 2.0 now": replace(course, rules=RequestRules(cpu_limit=2.0)),
        "course.demand.types.0: sinusoidal then, step now": replace(
            course, demand=GeneratedDemand(types=("step",))
        ),
    }
    before = (tmp_path / provenance.RUN_FILE).read_text()
    for loaded, other in others.items():
        stage = replace(STAGE, course=other)
        learner = SacLearner(seed=1, config=SacConfig(stage=stage, hidden=8, steps=20, batch=128, rate=5e-3))
        with pytest.raises(TrimtabError, match=re.escape(loaded)):
            loop.train(learner, tmp_path, updates=2)
    assert (tmp_path / provenance.RUN_FILE).read_text() == before
    (tmp_path / provenance.RUN_FILE).unlink()
    with pytest.raises(TrimtabError, match=r"run\.json: the file is missing, so the run"):
        loop.train(sac(), tmp_path, updates=2)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (RecordedDemand(generate_sample_trace(2)), RecordedDemand(generate_sample_trace(3))),
        (EnvironmentConfig(), EnvironmentConfig(hours=5)),
        (MixedDemand([GeneratedDemand()], weights=[1.0]), MixedDemand([GeneratedDemand()], weights=[2.0])),
        (np.zeros(3), np.ones(3)),
        (RequestRules(), RequestRules(burst=0.1)),
    ],
)
def test_training_settings_have_distinct_stable_descriptions(one: Any, other: Any) -> None:
    assert (
        provenance.describe_settings(one)
        == provenance.describe_settings(deepcopy(one))
        != provenance.describe_settings(other)
    )
    assert json.loads(
        json.dumps(provenance.describe_settings(one), allow_nan=False)
    ) == provenance.describe_settings(one)


def test_training_model_cards_match_the_code() -> None:
    folder = Path(str(files("trimtab.lab.neural"))) / "weights"
    found = {path.stem: msgspec.json.decode(path.read_bytes()) for path in folder.glob("*.json")}
    assert found.keys() == {"forecaster", "ppo", "sac"}
    for name, loaded in found.items():
        card = msgspec.convert(loaded, ModelCard, strict=True)
        assert msgspec.json.decode(msgspec.json.encode(card)) == loaded  # nothing that no code writes
        assert card.learner == name
        assert card.curve[-1][0] == card.updates


def test_training_network_computes_what_the_strategy_computes(tmp_path: Path) -> None:
    parameters = jax_network.init_network(
        np.random.default_rng(0), inputs=5, hidden=8, outputs=3, last_scale=1.0
    )
    inputs = np.random.default_rng(0).normal(size=(7, 5))
    parameters = jax_network.fit_scaling(parameters, inputs)
    np.testing.assert_allclose(
        predict(for_workers(parameters), inputs),
        jax_network.apply_network(parameters, inputs),
        rtol=1e-4,
        atol=1e-5,
    )
    loop.write_weights(forecaster(), tmp_path / "weights.npz")
    assert strategy("forecaster", 2, weights=str(tmp_path / "weights.npz")).containers == 2
    with pytest.raises(TrimtabError, match="the file is from another learner; name a file of this one"):
        strategy("learned", 2, weights=str(tmp_path / "weights.npz"))
    with pytest.raises(TrimtabError, match="weights: none: cannot be read"):
        strategy("learned", 2, weights="none")
    (tmp_path / "empty.npz").touch()
    np.save(tmp_path / "array.npy", np.zeros(3))
    (tmp_path / "array.npy").rename(tmp_path / "array.npz")
    for name in ("empty.npz", "array.npz"):
        with pytest.raises(TrimtabError, match=f"{name}: cannot be read"):
            strategy("learned", 2, weights=str(tmp_path / name))


def test_training_agent_explores_as_far_as_it_learns() -> None:
    chance = np.random.default_rng(0)
    agent = jax_network.init_network(chance, inputs=OBSERVATION_SIZE, hidden=4, outputs=2 * ACTION_SIZE)
    agent["last_bias"][ACTION_SIZE:] = 9.0  # as undecided as can be
    seen = chance.standard_normal((5, OBSERVATION_SIZE)).astype(np.float32)
    shard = RolloutShard(agent=for_workers(agent), spread=np.ones(ACTION_SIZE), containers=5, seed=(1,))
    chosen = choose_actions(shard, seen, np.random.default_rng(2))
    learned, _ = sample_action(agent, seen, np.random.default_rng(2).standard_normal((5, ACTION_SIZE)))
    np.testing.assert_allclose(chosen, learned, rtol=1e-3, atol=1e-3)


def with_gaps() -> RolloutConfig:
    """Containers of which nothing is known in every third hour."""
    trace = generate_sample_trace(4)
    hour = round(3600 / trace.step)
    empty = (np.arange(trace.steps) // hour) % 3 == 0
    cpu, memory = trace.cpu.copy(), trace.memory.copy()
    cpu[empty] = memory[empty] = np.nan
    course = EnvironmentConfig(demand=RecordedDemand(replace(trace, cpu=cpu, memory=memory)), hours=6)
    return RolloutConfig(course=course, containers=8, warm_ups=(2, 12))


def test_training_agent_ignores_hours_without_samples() -> None:
    sac_learner = SacLearner(seed=1, config=SacConfig(stage=with_gaps(), hidden=8, steps=2, batch=16))
    figures = sac_learner.learn()
    [remembered] = sac_learner._replay_buffer
    assert 0.5 < remembered.measured.mean() < 0.8
    assert (remembered.rewards[~remembered.measured] == 0.0).all()
    assert figures["reward"] == pytest.approx(remembered.rewards[remembered.measured].mean())
    assert len(sac_learner._collect_transitions()[0]) == remembered.measured.sum()
    plan = PpoConfig(stage=with_gaps(), hidden=8, batch=16, updates=2)
    assert np.isfinite(list(PpoLearner(seed=1, config=plan).learn().values())).all()


def test_training_advantage_of_an_unknown_hour_is_zero() -> None:
    rewards, expected = np.array([[-1.0], [0.0], [-1.0]]), np.array([[-2.0], [-3.0], [-2.5], [-1.0]])
    known = np.array([[True], [False], [True]])
    plan = PpoConfig(discount=0.5, trace=0.5)
    last = -1.0 + 0.5 * -1.0 + 2.5
    first = -1.0 + 0.5 * -3.0 + 2.0 + 0.25 * 0.25 * last
    assert _compute_advantages(rewards, known, expected, plan)[:, 0] == pytest.approx(
        [first, 0.25 * last, last]
    )


def test_training_quantiles_are_always_in_order() -> None:
    learner = forecaster()
    shown = (
        np.random.default_rng(0).normal(size=(50, learner._training_examples["cpu"].features.shape[1])) * 10
    )
    found = np.asarray(predict_quantiles(learner.tree["networks"]["cpu"], shown))
    assert (np.diff(found, axis=1) >= 0).all()


def test_training_example_is_the_next_hour_with_its_memory_peak() -> None:
    cpu, memory = build_examples(generate_sample_trace(4), seed=0, most=100)
    assert len(cpu.features) == len(memory.features) == 100
    assert np.isfinite(cpu.targets).all()
    assert (np.isfinite(memory.targets).sum(axis=1) == 1).all()
    assert cpu.targets.shape[1] == SAMPLES


def test_training_and_test_examples_are_disjoint() -> None:
    assert not set(TRAINED_FAMILIES) & {*HELD_OUT_FAMILIES, *RELATED_FAMILIES}
    assert {*TRAINED_FAMILIES, *HELD_OUT_FAMILIES, *RELATED_FAMILIES} <= set(GENERATORS.names())
    for family in HELD_OUT_FAMILIES:
        assert not list_fitted_recordings(family) & KNOWN_RECORDINGS
    for family in RELATED_FAMILIES:
        assert list_fitted_recordings(family) & KNOWN_RECORDINGS
    assert {"nab_aws", "alibaba2018_machines", "bitbrains_rnd"} <= KNOWN_RECORDINGS
    assert not KNOWN_RECORDINGS & {"nezha_k8s_pods", "alibaba_genai2026_pods"}
    short = generate_sample_trace(2)
    assert build_training_traces([short], seed=0, containers=2, generated=False) == [short]
    with pytest.raises(TrimtabError, match="no recording is as long"):
        build_training_demand([short], hours=24 * 15, generated=False)
