"""Train the networks that ship with Trimtab, with the same data, settings and seed.

    python examples/train_weights.py TRACES --learner forecaster --folder made
    python examples/train_weights.py TRACES --brief     a short run, to check that it works

It needs what training needs: pip install '.[train]'.

TRACES is a folder with one folder per dataset, each with a parquet file. Four datasets are used for training; all others
are kept for tests. The result depends on the last bit of the machine's arithmetic, so it is as good as the shipped one but
not equal. On one NVIDIA H200 with four workers each takes four to five minutes; on two cores about an hour.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trimtab.lab.environments import EnvironmentConfig, GeneratedDemand, MixedDemand, RecordedDemand
from trimtab.lab.ray_engine import Workers, run_locally
from trimtab.lab.training import loop, model_card, sources
from trimtab.lab.training.base import Learner
from trimtab.lab.training.base_agent import RolloutConfig
from trimtab.lab.training.forecaster import ForecasterConfig, ForecasterLearner
from trimtab.lab.training.ppo import PpoConfig, PpoLearner
from trimtab.lab.training.sac import SacConfig, SacLearner
from trimtab.usage.files import read_trace
from trimtab.usage.trace import Trace

LONG = ("bitbrains_rnd", "crane_dsp")
SHORT = ("planetlab", "alibaba_tianchi_apps")
MOST_CONTAINERS, MOST_DAYS = 1500, 60
DATA = {
    "bitbrains_rnd": "Bitbrains rnd, CPU of its first 60 days",
    "crane_dsp": "crane dsp",
    "planetlab": "PlanetLab, 1,500 VMs at most",
    "alibaba_tianchi_apps": "Alibaba Tianchi apps, 1,500 at most",
}


class Extent(NamedTuple):
    """The amount of training."""

    updates: int
    containers: int
    """The containers of a family of generators, or of a shard of episodes."""
    steps: int
    """The steps of an update; PPO uses all steps of its episodes."""


SHIPPED = {"forecaster": Extent(110, 500, 200), "ppo": Extent(260, 256, 0), "sac": Extent(160, 256, 200)}
BRIEF = Extent(updates=2, containers=4, steps=2)


def recording(folder: Path, name: str) -> Trace:
    """Return a dataset as used for training, without Bitbrains' memory, which drops to almost nothing unlike containers'."""
    trace = read_trace(folder / name / f"{name}.parquet")
    columns = np.random.default_rng(5).permutation(trace.container_count)[:MOST_CONTAINERS]
    trace, rows = trace.select_columns(np.sort(columns)), round(MOST_DAYS * 86400 / trace.step)
    memory = trace.memory * np.nan if name == "bitbrains_rnd" else trace.memory
    return replace(trace, cpu=trace.cpu[:rows], memory=memory[:rows])


def learner(name: str, folder: Path, extent: Extent, workers: Workers[Any, Any]) -> Learner:
    updates, containers, steps = extent
    if name == "forecaster":
        traces = [recording(folder, each) for each in (*SHORT, *LONG)]
        plan = ForecasterConfig(updates=updates, steps=steps, batch=4096, examples=100_000, decay=1e-2)
        made = sources.build_training_traces(traces, seed=0, containers=containers)
        return ForecasterLearner(made, seed=0, config=plan, workers=workers)
    drawn = [GeneratedDemand(types=sources.TRAINED_FAMILIES, step=step) for step in (300.0, 60.0)]
    demand = MixedDemand(
        [*drawn, *(RecordedDemand(recording(folder, each)) for each in LONG)], weights=[2.0, 1.0, 1.0, 0.5]
    )
    stage = RolloutConfig(course=EnvironmentConfig(demand=demand, hours=72), containers=containers)
    if name == "ppo":
        return PpoLearner(seed=0, config=PpoConfig(stage=stage, updates=updates), workers=workers)
    return SacLearner(seed=0, config=SacConfig(stage=stage, steps=steps), workers=workers)


def data(name: str) -> list[str]:
    """Describe the training data of a learner."""
    sets = (*SHORT, *LONG) if name == "forecaster" else LONG
    return ["generators: " + ", ".join(sources.TRAINED_FAMILIES), *(DATA[each] for each in sets)]


@contextmanager
def start_workers(count: int) -> Iterator[Workers[Any, Any]]:
    """Start worker processes that generate examples and run episodes; one worker is this process."""
    if count == 1:
        yield run_locally
        return
    with get_context("forkserver").Pool(count) as pool:
        yield lambda work, parts: pool.map(work, list(parts), chunksize=1)


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("traces", type=Path)
    parser.add_argument("--learner", choices=SHIPPED, default="forecaster")
    parser.add_argument("--folder", type=Path, default=Path("made"))
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--brief", action="store_true", help="a short run, to check that it works")
    given = parser.parse_args()
    extent = BRIEF if given.brief else SHIPPED[given.learner]
    with start_workers(given.workers) as workers:
        made = learner(given.learner, given.traces, extent, workers)

        def report(done: int, figures: dict[str, float]) -> None:
            print(f"{done:4d} {made.objective} {figures[made.objective]:.4f}")

        figures = loop.train(
            made,
            given.folder,
            updates=extent.updates,
            on_update=report,
            command=f"examples/train_weights.py TRACES --learner {given.learner}{' --brief' if given.brief else ''}",
            data=data(given.learner),
        )
    loop.write_weights(made, given.folder / "weights.npz")
    model_card.write_model_card(given.folder, given.folder / "weights.json", made, figures=figures)


if __name__ == "__main__":
    main()
