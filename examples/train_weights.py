"""Make the networks that ship with Trimtab anew: what was trained on, with which settings and seed.

    python examples/train_weights.py TRACES --learner forecaster --folder made

TRACES is a folder with a folder a set, each with a parquet file, of which four are trained on; all others are left for
the test. What comes out depends on the last bit of the machine's arithmetic, so it is as good as the shipped one and
not the same. On one NVIDIA H200 with four workers each takes four to five minutes; on two cores about an hour.
"""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.lab.environments import AnyOf, Course, Generated, Recorded
from trimtab.lab.learners import card, sources, training
from trimtab.lab.learners.agent import Stage
from trimtab.lab.learners.forecaster import ForecasterLearner, ForecasterPlan
from trimtab.lab.learners.learner import Learner
from trimtab.lab.learners.ppo import PpoLearner, PpoPlan
from trimtab.lab.learners.sac import SacLearner, SacPlan
from trimtab.usage.files import read
from trimtab.usage.trace import Trace

LONG = ("bitbrains_rnd", "crane_dsp")
SHORT = ("planetlab", "alibaba_tianchi_apps")
MOST_CONTAINERS, MOST_DAYS = 1500, 60
UPDATES = {"forecaster": 110, "ppo": 260, "sac": 160}


def recording(folder: Path, name: str) -> Trace:
    """A set as it was trained on. Bitbrains' active memory falls near nothing, which no container's does: left out."""
    trace = read(folder / name / f"{name}.parquet")
    columns = np.random.default_rng(5).permutation(trace.containers)[:MOST_CONTAINERS]
    trace, rows = trace.only(np.sort(columns)), round(MOST_DAYS * 86400 / trace.step)
    memory = trace.memory * np.nan if name == "bitbrains_rnd" else trace.memory
    return replace(trace, cpu=trace.cpu[:rows], memory=memory[:rows])


def learner(name: str, folder: Path, workers: Any) -> Learner:
    updates = UPDATES[name]
    if name == "forecaster":
        traces = [recording(folder, each) for each in (*SHORT, *LONG)]
        plan = ForecasterPlan(updates=updates, steps=200, batch=4096, examples=100_000, decay=1e-2)
        made = sources.recordings(traces, seed=0, containers=500)
        return ForecasterLearner(made, seed=0, plan=plan, workers=workers)
    drawn = [Generated(types=sources.TRAINED, step=step) for step in (300.0, 60.0)]
    demand = AnyOf(
        [*drawn, *(Recorded(recording(folder, each)) for each in LONG)], weights=[2.0, 1.0, 1.0, 0.5]
    )
    stage = Stage(course=Course(demand=demand, hours=72))
    if name == "ppo":
        return PpoLearner(seed=0, plan=PpoPlan(stage=stage, updates=updates), workers=workers)
    return SacLearner(seed=0, plan=SacPlan(stage=stage, steps=200), workers=workers)


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("traces", type=Path)
    parser.add_argument("--learner", choices=UPDATES, default="forecaster")
    parser.add_argument("--folder", type=Path, default=Path("made"))
    parser.add_argument("--workers", type=int, default=4)
    given = parser.parse_args()
    with get_context("forkserver").Pool(given.workers) as pool:
        made = learner(
            given.learner, given.traces, lambda work, parts: pool.map(work, list(parts), chunksize=1)
        )

        def told(done: int, figures: dict[str, float]) -> None:
            print(f"{done:4d} {made.objective} {figures[made.objective]:.4f}")

        figures = training.train(made, given.folder, updates=UPDATES[given.learner], told=told)
    training.ship(made, given.folder / "weights.npz")
    command = f"examples/train_weights.py TRACES --learner {given.learner}"
    card.write(given.folder / "weights.json", made, command=command, data=(*SHORT, *LONG), figures=figures)


if __name__ == "__main__":
    main()
