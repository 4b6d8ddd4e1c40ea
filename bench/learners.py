"""The recommenders that learn beside vpa, autopilot-ml and trimtab, by the same back-test, on what none was trained on.

And the agents beside doing nothing, by the reward that they were trained for.

    make bench BENCH=learners TRACES=FOLDER
    .venv/bin/python bench/learners.py TRACES --containers 60 --picture curves.png

None was trained on these families of generators and sets of recordings (TRACES, a folder a set; without it the generators
alone). Those whose statistics are in a family that was trained on are marked: they are not wholly new to the networks, and a
second summary leaves them out. Each strategy runs with its defaults; trimtab and the forecaster are swept over the risk too, for
their curves. Behind each row stands what trimtab would have at the same harm, read off between two of its risks: its
CPU slack at the same time under, at the same CPU unserved, and its memory slack at the same rate of OOMs, the row's
divided by that. Under 1 is better than trimtab; where trimtab's curve does not reach so far its nearest end is taken.
"""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from trimtab.lab.backtest import BacktestSchedule, backtest
from trimtab.lab.environments import EnvironmentConfig, GeneratedDemand
from trimtab.lab.neural.actions import ACTION_SIZE, OBSERVATION_SIZE
from trimtab.lab.neural.network import Network, build_network, predict
from trimtab.lab.neural.network import load_weights as weights
from trimtab.lab.training.sources import (
    HELD_OUT_FAMILIES,
    KNOWN_RECORDINGS,
    RELATED_FAMILIES,
    TRAINED_FAMILIES,
)
from trimtab.lab.workloads import generate
from trimtab.sizing import strategy
from trimtab.usage.files import read_trace
from trimtab.usage.trace import Trace

TRACES = Path(os.environ.get("TRACES", "traces"))
SETS = (
    "nezha_k8s_pods",
    "nab_aws",
    "alibaba2018_machines",
    "alibaba2018_containers_vasim",
    "alibaba_genai2026_pods",
)
RISKS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
OOMS = (0.01, 0.1, 0.2, 1.0, 2.0, 5.0, 20.0)
Settings = dict[str, float | str]
SWEEP: list[Settings] = [
    {"cpu_risk": risk, "memory_risk": ooms} for risk, ooms in zip(RISKS, OOMS, strict=True)
]
RUNS: list[tuple[str, Settings]] = [
    ("vpa", {}),
    ("autopilot-ml", {}),
    ("trimtab", {}),
    ("forecaster", {}),
    ("learned", {"weights": "ppo"}),
    ("learned", {"weights": "sac"}),
    *(("forecaster", choice) for choice in SWEEP),
]
EPISODES = 12
COLUMNS = {
    "cpu_slack": "SLACK",
    "cpu_under": "UNDER",
    "cpu_under_p90": "P90",
    "cpu_deficit": "UNSERVED",
    "memory_slack": "MEMORY",
    "ooms_day": "OOM/DAY",
    "changes_day": "CHANGES",
    "dollars_month": "$/MONTH",
}
BESIDE = (("cpu_under", "cpu_slack"), ("cpu_deficit", "cpu_slack"), ("ooms_day", "memory_slack"))
Summary = Mapping[str, float]
console = Console(width=160)


def main() -> None:
    parser = ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("traces", nargs="?", type=Path, default=TRACES)
    parser.add_argument("--containers", type=int, default=60, help="take at most so many of each set")
    parser.add_argument("--picture", type=Path, help="draw how the shipped networks got better into this PNG")
    given = parser.parse_args()
    rewarded(HELD_OUT_FAMILIES)
    rewarded(TRAINED_FAMILIES)
    runs: list[tuple[bool, dict[tuple[str, str], Summary], list[Summary]]] = []
    for name, trace in sets(given.traces, given.containers):
        is_new = name not in KNOWN_RECORDINGS and name.removeprefix("generator ") not in RELATED_FAMILIES
        ours = [summary(trace, "trimtab", choice) for choice in SWEEP]
        results = {(who, format_settings(choice)): summary(trace, who, choice) for who, choice in RUNS}
        mark = "" if is_new else " (its statistics are in what was trained on)"
        show(f"{name}: {trace.container_count} containers{mark}", results, ours)
        runs.append((is_new, results, ours))
    show_all("all sets, each counting the same", runs)
    show_all("those that are new to the networks", [run for run in runs if run[0]])
    if given.picture:
        draw(given.picture)


def show_all(
    title: str, runs: Sequence[tuple[bool, Mapping[tuple[str, str], Summary], Sequence[Summary]]]
) -> None:
    results = {key: mean([found[key] for _, found, _ in runs]) for key in runs[0][1]}
    show(title, results, [mean([ours[place] for *_, ours in runs]) for place in range(len(SWEEP))])


def rewarded(families: Sequence[str]) -> None:
    """Print the rewards of the agents in the environment beside a request that stays constant after the first day."""
    table = Table(
        "AGENT", "REWARD", "±", box=None, title=f"reward on {', '.join(families)}", title_justify="left"
    )
    course = EnvironmentConfig(demand=GeneratedDemand(types=families), hours=72, warm_up=24)
    for name in ("unchanged", "ppo", "sac"):
        agent = (
            None
            if name == "unchanged"
            else build_network(weights(name), "agent.", inputs=OBSERVATION_SIZE, source=name)
        )
        found = [reward(agent, course, seed) for seed in range(EPISODES)]
        error = np.std(found, ddof=1) / np.sqrt(len(found))
        table.add_row(name, f"{np.mean(found):.3f}", f"{error:.3f}")
    console.print(table)


def reward(agent: Network | None, course: EnvironmentConfig, seed: int) -> float:
    """Return the mean reward of an hour in one episode of 64 containers, by what an agent thinks best."""
    episode = course.start_episode(np.random.default_rng(seed), containers=64)
    unchanged, earned = np.full(64, np.nan), []
    for _ in range(course.hours):
        cpu = memory = unchanged
        if agent is not None:
            seen, spans = episode.sim.observe()
            answers = predict(agent, np.clip(seen, -100.0, 100.0))[:, :ACTION_SIZE]
            cpu, memory = (span.to_size(1 / (1 + np.exp(-answers[:, at]))) for at, span in enumerate(spans))
        rewards, info = episode.step(cpu, memory)
        earned.append(rewards[info["measured"]])
    return float(np.concatenate(earned).mean())


def sets(folder: Path, most: int) -> list[tuple[str, Trace]]:
    """Return data that was not used for training: available recordings, and generators."""
    found = []
    for name in SETS:
        file = folder / name / f"{name}.parquet"
        if file.exists():
            found.append((name, some(read_trace(file), most)))
        else:
            console.print(f"skipped: there is no recording at {file}")
    generated = [
        (f"generator {name}", generate(name, count=most, seed=99, duration=14 * 86400.0).to_trace())
        for name in (*RELATED_FAMILIES, *HELD_OUT_FAMILIES)
    ]
    return [*found, *generated]


def some(trace: Trace, most: int) -> Trace:
    if trace.container_count <= most:
        return trace
    return trace.select_columns(np.sort(np.random.default_rng(0).permutation(trace.container_count)[:most]))


def summary(trace: Trace, name: str, settings: Settings) -> Summary:
    return backtest(trace, strategy(name, trace.container_count, **settings), BacktestSchedule()).summary()


def format_settings(settings: Settings) -> str:
    return " ".join(f"{key}={value}" for key, value in settings.items())


def mean(parts: Sequence[Summary]) -> Summary:
    """Over the sets that have such a figure."""
    return {key: float(np.nanmean([part[key] for part in parts])) for key in COLUMNS}


def at(curve: Sequence[Summary], key: str, value: float, wanted: str) -> float:
    """Interpolate a curve at so much harm."""
    ordered = sorted(curve, key=lambda point: point[key])
    places = np.log([max(point[key], 1e-5) for point in ordered])
    return float(np.interp(np.log(max(value, 1e-5)), places, [point[wanted] for point in ordered]))


def show(title: str, results: Mapping[tuple[str, str], Summary], ours: Sequence[Summary]) -> None:
    head = ("STRATEGY", *COLUMNS.values(), "SLACK@UNDER", "SLACK@UNSERVED", "MEMORY@OOM")
    table = Table(*head, box=None, title=title, title_justify="left")
    for (name, settings), found in results.items():
        figures = [f"{found[key]:.4f}" if key != "dollars_month" else f"{found[key]:,.0f}" for key in COLUMNS]
        ratios = [f"{found[cost] / at(ours, harm, found[harm], cost):.2f}" for harm, cost in BESIDE]
        table.add_row(f"{name} {settings}", *figures, *ratios)
    console.print(table)


def draw(path: Path) -> None:
    """The curves on the cards of the shipped networks."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    folder = Path(str(files("trimtab.sizing"))) / "weights"
    cards = [json.loads((folder / f"{name}.json").read_text()) for name in ("forecaster", "ppo", "sac")]
    figure, axes = plt.subplots(1, len(cards), figsize=(11, 3.2), layout="constrained")
    for card, axis in zip(cards, axes, strict=True):
        axis.plot(*zip(*card["curve"], strict=True), color="#0b6e4f")
        axis.set(
            title=card["learner"], xlabel="update", ylabel=f"{card['objective']} ({card['better']} is better)"
        )
        axis.grid(color="#e2e8f0")
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
