"""Fit the workload types azure, alibaba and borg, and show the fit: `python bench/fit_workloads.py TRACES`.

TRACES is a folder of recordings of usage, one folder a set: `<set>/<set>.parquet` with the columns series, t_seconds,
cpu_cores | cpu_fraction, mem_bytes | mem_fraction. They are read now and nothing of them is kept: what is written are
the quantiles of each statistic over a fleet's series, into src/trimtab/lab/workloads/fitted/, and with --report a table
(Markdown) and a picture of the statistics, real against generated. A set that is not there is skipped by name, and so
is a type none of whose sets is there.

The fit is by simulated moments: begin with the measured quantiles as the settings, generate, measure what came out,
correct each setting by how far its statistic is off, and again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import ks_2samp, spearmanr

from trimtab.lab.workloads.features import Features
from trimtab.lab.workloads.fleet_model import QUANTILE_LEVELS, FleetGenerator, FleetSettings
from trimtab.usage.files import read_trace
from trimtab.usage.trace import Floats

FITTED = Path(__file__).parents[1] / "src" / "trimtab" / "lab" / "workloads" / "fitted"
STEP, DAYS, SERIES, ROUNDS = 300.0, 8, 600, 12
PLACES = np.clip(QUANTILE_LEVELS, 0.005, 0.995)
"""Quantiles used instead of minimum and maximum, which depend on a single series."""
SIZES = ("mean_cores", "mean_mib")
"""Statistics whose maximum counts: a few huge series make up most of a fleet's load."""
NEAR = 0.2
"""The largest difference between a setting and the correlation that it produces."""
SHOWN = (
    "mean_cores",
    "peak_ratio",
    "variability",
    "next_step",
    "next_day",
    "burst_share",
    "mean_mib",
    "memory_variability",
)
Sample = dict[str, Floats]


@dataclass(frozen=True)
class Recipe:
    """The sources of the statistics of one type."""

    shape: tuple[str, ...]
    """Sets for how CPU goes over time."""
    memory: tuple[str, ...]
    """Sets for how memory does."""
    sizes: Callable[[Mapping[str, Features]], Sample]
    how: str
    variability: tuple[str, ...] = ()
    """Sets for how uneven series are, where those of the shape are too few."""

    @property
    def sets(self) -> list[str]:
        """All sets that something of the type comes from."""
        return sorted({*self.shape, *self.memory, *self.variability})


def azure_sizes(_: Mapping[str, Features]) -> Sample:
    """After what was published of Azure's VMs (Cortez et al., SOSP 2017): a few sizes of VM, most of them little used."""
    chance = np.random.default_rng(1)
    cores = chance.choice([1, 2, 4, 8, 16], p=[0.50, 0.30, 0.14, 0.05, 0.01], size=4000)
    gib = np.array([1.75, 3.5, 7.0, 14.0, 56.0])[np.searchsorted([1, 2, 4, 8, 16], cores)]
    used = np.interp(chance.random(4000), [0, 0.25, 0.6, 0.8, 0.95, 1], [0.005, 0.04, 0.2, 0.4, 0.75, 0.97])
    return {"mean_cores": cores * used, "mean_mib": gib * 1024 * chance.uniform(0.25, 0.75, 4000)}


def borg_sizes(_: Mapping[str, Features]) -> Sample:
    """Pareto as jobs on Borg are in all they use (Tirmazi et al., EuroSys 2020), cut off at what one machine has."""
    chance = np.random.default_rng(1)

    def pareto(*, shape: float, least: float, most: float) -> Floats:
        left = 1 - chance.random(4000) * (1 - (least / most) ** shape)
        drawn: Floats = least * left ** (-1 / shape)
        return drawn

    return {
        "mean_cores": pareto(shape=0.69, least=0.002, most=64.0),
        "mean_mib": pareto(shape=0.72, least=8.0, most=256.0 * 1024),
    }


def tianchi_sizes(found: Mapping[str, Features]) -> Sample:
    tianchi = found["alibaba_tianchi_apps"]
    return {"mean_cores": tianchi.mean_cores, "mean_mib": tianchi.mean_mib}


RECIPES = {
    "azure": Recipe(
        shape=("bitbrains_rnd", "nab_aws"),
        memory=("bitbrains_rnd",),
        sizes=azure_sizes,
        how="Sizes after what was published of Azure's VMs in 2017 (80 % have one or two cores, 60 % use less than a fifth"
        " of them, 70 % have less than 4 GB: shares that were not looked up again, but the mean of 2.2 cores was, see"
        " docs/research/workloads.md); that a quarter to three quarters of a VM's memory is used is our assumption. How"
        " usage goes over time is that of other clouds' VMs: Bitbrains rnd (110) and AWS in NAB (11).",
    ),
    "alibaba": Recipe(
        shape=("alibaba2018_machines", "alibaba2018_containers_vasim"),
        memory=("alibaba_tianchi_apps",),
        variability=("alibaba_tianchi_apps",),
        sizes=tianchi_sizes,
        how="Sizes, unevenness and memory of 4,207 applications of Alibaba (Tianchi 2018, a day at 15 minutes); how CPU"
        " goes on and comes back each day, of 16 hosts and 2 containers of Alibaba's trace of 2018 (8 days).",
    ),
    "borg": Recipe(
        shape=("nezha_k8s_pods", "planetlab", "alibaba2018_containers_vasim", "alibaba2018_machines"),
        memory=("nezha_k8s_pods",),
        sizes=borg_sizes,
        how="Sizes Pareto with the exponents that were published of whole jobs' core-hours and byte-hours on Borg in 2019"
        " (0.69 for CPU, 0.72 for memory), taken for one task's size: from 0.002 cores and 8 MiB, our assumption, to 64"
        " cores and 256 GiB. No Borg usage was at hand: how it goes over time is that of containers and"
        " slices elsewhere (Nezha's pods, PlanetLab, Alibaba 2018), each set with the same weight.",
    ),
}


def measured(folder: Path) -> dict[str, Features]:
    """Compute the statistics of each available set."""
    found = {}
    for name in sorted({name for recipe in RECIPES.values() for name in recipe.shape + recipe.memory}):
        path = folder / name / f"{name}.parquet"
        if not path.exists():
            print(f"skipped: {name}: there is no {path}")
            continue
        trace = read_trace(path, step=900.0 if name == "alibaba_tianchi_apps" else STEP)
        found[name] = Features.from_series(trace.cpu.T.copy(), trace.memory.T.copy(), step=trace.step)
        print(f"read: {name}: {trace.container_count} series of {trace.steps} steps of {trace.step:g} s")
    return found


def target(recipe: Recipe, found: Mapping[str, Features]) -> Sample:
    """Return the target: for each statistic its values over many series, each set with the same weight."""
    goal = recipe.sizes(found)
    for names, statistics in (
        (recipe.shape, ("next_step", "next_day")),
        (recipe.variability or recipe.shape, ("variability", "peak_ratio", "burst_share")),
        (recipe.memory, ("memory_variability", "memory_follows")),
    ):
        for statistic in statistics:
            values = [_finite(getattr(found[name], statistic)) for name in names if name in found]
            even = np.linspace(0.0005, 0.9995, 1000)
            goal[statistic] = np.concatenate([np.quantile(each, even) for each in values if len(each) > 1])
    return goal


def fit(goal: Sample, found: Mapping[str, Features]) -> dict[str, Any]:
    aim = {
        name: np.quantile(values, QUANTILE_LEVELS if name in SIZES else PLACES)
        for name, values in goal.items()
    }
    numbers: dict[str, Any] = {
        "mean_cores": aim["mean_cores"],
        "variability": aim["variability"],
        "persistence": np.clip(aim["next_step"], 0.001, 0.999),
        "daily": np.clip(aim["next_day"], 0.001, 0.95),
        "burst_share": np.clip(aim["burst_share"] / 2, 1e-6, 0.3),
        "burst_size": 3.0,
        "burst_length": 900.0,
        "mean_mib": aim["mean_mib"],
        "memory_variability": np.maximum(aim["memory_variability"], 1e-4),
        "memory_follows": float(np.clip(np.median(goal["memory_follows"]), -1, 1)),
        "sizes_together": _together(found),
        "small_vary": 0.3,
    }
    for number in range(ROUNDS):
        got = {name: np.quantile(values, PLACES) for name, values in generated(numbers, seed=number).items()}
        _correct(numbers, aim, got)
    return {name: _short(number) for name, number in numbers.items()}


def _correct(numbers: dict[str, Any], aim: Sample, got: Sample) -> None:
    """Each setting by its own statistic, most of the way; quantiles stay in their order."""
    for setting, statistic, most in (
        ("variability", "variability", 20.0),
        ("memory_variability", "memory_variability", 5.0),
        ("burst_share", "burst_share", 0.3),
    ):
        off = (aim[statistic] + 1e-3) / (got[statistic] + 1e-3)
        numbers[setting] = _ordered(np.clip(numbers[setting] * off**0.6, 1e-6, most))
    for setting, statistic in (("persistence", "next_step"), ("daily", "next_day")):
        moved = numbers[setting] + 0.6 * (aim[statistic] - got[statistic])
        # What bursts drown cannot be had by asking for more and more of it.
        near = np.clip(moved, aim[statistic] - NEAR, aim[statistic] + NEAR)
        numbers[setting] = _ordered(np.clip(near, 0.001, 0.99))
    middle = len(QUANTILE_LEVELS) // 2
    off = aim["peak_ratio"][middle] / got["peak_ratio"][middle]
    numbers["burst_size"] = float(np.clip(numbers["burst_size"] * off**0.4, 1.0, 20.0))


def _ordered(values: Floats) -> Floats:
    ordered: Floats = np.maximum.accumulate(values)
    return ordered


def _together(found: Mapping[str, Features]) -> float:
    """Return the correlation of CPU and memory over a fleet; the median if several sets have it."""
    known = [
        spearmanr(one.mean_cores[both], one.mean_mib[both]).statistic
        for one in found.values()
        if (both := np.isfinite(one.mean_cores) & np.isfinite(one.mean_mib)).sum() > 50
    ]
    return float(np.median(known)) if known else 0.5


def generated(numbers: Mapping[str, Any], *, seed: int) -> Sample:
    settings = FleetSettings(
        step=STEP,
        duration=DAYS * 86400.0,
        **{
            name: tuple(number) if isinstance(number, np.ndarray) else number
            for name, number in numbers.items()
        },
    )
    made = FleetGenerator(settings).generate(SERIES, seed=seed)
    features = Features.from_series(made.cpu, made.memory, step=STEP)
    return {field.name: _finite(getattr(features, field.name)) for field in fields(features)}


def _finite(values: Floats) -> Floats:
    return values[np.isfinite(values)]


def _short(number: Any) -> Any:
    return [float(f"{each:.4g}") for each in number] if isinstance(number, np.ndarray) else round(number, 3)


def table(name: str, goal: Sample, got: Sample) -> str:
    """P5, P50 and P95 of each statistic, and the largest distance of the two distributions."""
    lines = [
        f"| {name} | real P5 | P50 | P95 | made P5 | P50 | P95 | KS |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for statistic in SHOWN:
        cells = [
            *np.quantile(goal[statistic], [0.05, 0.5, 0.95]),
            *np.quantile(got[statistic], [0.05, 0.5, 0.95]),
        ]
        distance = ks_2samp(goal[statistic], got[statistic]).statistic
        values = " | ".join(f"{cell:.3g}" for cell in cells)
        lines.append(f"| {statistic} | {values} | {distance:.2f} |")
    return "\n".join(lines) + "\n"


def picture(path: Path, all_of_them: Mapping[str, tuple[Sample, Sample]]) -> None:
    figure = Figure(figsize=(16, 2.4 * len(all_of_them)), layout="constrained")
    panels = figure.subplots(len(all_of_them), len(SHOWN), squeeze=False)
    for row, (name, samples) in zip(panels, all_of_them.items(), strict=True):
        for axis, statistic in zip(row, SHOWN, strict=True):
            for sample, colour, label in zip(
                samples, ("#4a5568", "#c0392b"), ("real", "generated"), strict=True
            ):
                values = np.sort(sample[statistic])
                axis.plot(values, np.linspace(0, 1, len(values)), color=colour, label=label, linewidth=1.4)
            if statistic not in {"next_step", "next_day"}:
                axis.set_xscale("symlog", linthresh=1e-3)
            axis.set_title(statistic.replace("_", " "), fontsize=9)
            axis.tick_params(labelsize=7)
        row[0].set_ylabel(f"{name}: share of series")
    panels[0][0].legend(fontsize=8)
    figure.savefig(path, dpi=90)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("traces", type=Path)
    parser.add_argument("--report", type=Path, help="write the tables here")
    parser.add_argument("--picture", type=Path, help="draw the fit here, as PNG")
    given = parser.parse_args()
    found, drawn, report = measured(given.traces), {}, []
    for name, recipe in RECIPES.items():
        missing = [one for one in recipe.shape + recipe.memory if one not in found]
        if missing:
            print(f"skipped: {name}: is fitted to {', '.join(missing)} too")
            continue
        goal = target(recipe, found)
        numbers = fit(goal, {one: found[one] for one in recipe.memory})
        got = generated(numbers, seed=1000)  # one that it was not fitted with
        drawn[name] = (goal, got)
        report.append(table(name, goal, got))
        print(report[-1])
        (FITTED / f"{name}.json").write_text(
            json.dumps({"how": recipe.how, "sets": recipe.sets, "numbers": numbers}, indent=2) + "\n"
        )
    if given.report:
        given.report.write_text("\n".join(report))
    if given.picture and drawn:
        picture(given.picture, drawn)


if __name__ == "__main__":
    main()
