"""The accuracy of learned effects: recorded services, and predictions for sizes without samples.

    .venv/bin/python bench/effects.py FOLDER

FOLDER has what public data sets measured, each in its own form: `infadapter` (p99 and capacity of five models on 1 to
20 cores), `acprof` (latency of AI containers by cores and memory), `intel_ido` (events of the original planner, and
what it planned). Each size is left out once, the curve is fitted to the others, and predicts the omitted size.
Beside it the curve of the original project, latency = a·e^(-b·cpu) + c, is asked the same. Events are planned again
in their order, with what was learned until then.
"""

import csv
import gzip
import math
from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.optimize import curve_fit

from trimtab.intents.actuator import actuator
from trimtab.intents.constraints import PlanConstraints
from trimtab.intents.effects.inputs import ModelInputs
from trimtab.intents.effects.latency_model import LatencyModel
from trimtab.intents.effects.samples import EffectSample
from trimtab.intents.evaluation import median_error, replay
from trimtab.intents.ido_import import RecordedEvent, read_events
from trimtab.intents.planners.astar import AStar

GIB = 2.0**30
NAMES = {
    "scaleOut": ("scaleOut", "scaleIn"),
    "rmPod": ("rmPod", "scaleIn"),
    "scaleCPU": ("resizeCPU",),
    "configureRDT": ("cacheClass",),
    "setPowerProfile": ("powerProfile",),
}
Fit = Callable[[Sequence[EffectSample], Sequence[EffectSample]], Iterable[float]]


def ours(known: Sequence[EffectSample], asked: Sequence[EffectSample]) -> Iterable[float]:
    return LatencyModel.fit_samples(known, now=0.0).predict_latency([each.inputs for each in asked])


def original(known: Sequence[EffectSample], asked: Sequence[EffectSample]) -> Iterable[float]:
    """Fit the curve a·e^(-b·cpu) + c by scipy's curve_fit, as the original does."""
    cpu = np.array([each.inputs.cpu for each in known])
    value = np.array([each.value for each in known])
    start = (value.max() - value.min(), 1.0, value.min())

    def shape(x: np.ndarray, a: float, b: float, c: float) -> np.ndarray:
        return a * np.exp(-b * x) + c

    try:
        found, _ = curve_fit(shape, cpu, value, p0=start, bounds=(0, np.inf), maxfev=3000)
    except RuntimeError:
        return [math.nan] * len(asked)
    return [float(shape(np.array(each.inputs.cpu), *found)) for each in asked]


def left_out(samples: Sequence[EffectSample], fit: Fit) -> list[float]:
    """Return the relative error of the prediction for each omitted number of cores."""
    found = []
    for cpu in sorted({each.inputs.cpu for each in samples}):
        known = [each for each in samples if each.inputs.cpu != cpu]
        asked = [each for each in samples if each.inputs.cpu == cpu]
        for said, each in zip(fit(known, asked), asked, strict=True):
            found.append(abs(math.log(max(said, 1e-9) / each.value)) if math.isfinite(said) else 5.0)
    return found


def sample(*, cpu: float, value: float, load: float = math.nan, memory: float = math.inf) -> EffectSample:
    return EffectSample(0.0, ModelInputs(1.0, cpu, memory, load, "", "", ()), value)


def infadapter(folder: Path) -> dict[str, list[EffectSample]]:
    found = defaultdict(list)
    for path in folder.glob("*.csv"):
        for row in csv.DictReader(path.open()):
            if float(row["p99_latency"] or 0) > 0 and float(row["capacity"] or 0) > 0:
                found[f"ResNet-{row['ARCH']}"].append(
                    sample(
                        cpu=float(row["CPU"]), value=float(row["p99_latency"]), load=float(row["capacity"])
                    )
                )
    return found


def acprof(folder: Path) -> dict[str, list[EffectSample]]:
    found = defaultdict(list)
    with gzip.open(folder / "acprof_latency.csv.gz", "rt") as rows:
        for row in csv.DictReader(rows):
            if "off" not in row["gpu_mode"] or row["warmup"] == "1":
                continue
            latency = float(row["latency_s"] or 0) or float(row["latency_ms"] or 0) / 1000
            if latency <= 0:
                continue
            what = [
                row[name]
                for name in ("file", "batch_size", "token_len", "context_length", "input_len_tokens")
            ]
            found["/".join(what)].append(
                sample(cpu=float(row["cpu_cores"]), value=latency, memory=float(row["mem_cap_gb"]) * GIB)
            )
    return {name: each for name, each in found.items() if len({one.inputs.cpu for one in each}) >= 4}


def print_errors(console: Console, title: str, sets: dict[str, list[EffectSample]]) -> None:
    table = Table("services", "points", "ours", "ours, mean", "a·e^(-b·cpu)+c", "its mean", title=title)
    ours_off = [each for samples in sets.values() for each in left_out(samples, ours)]
    original_off = [each for samples in sets.values() for each in left_out(samples, original)]
    errors = [float(how(off)) for off in (ours_off, original_off) for how in (np.median, np.mean)]
    table.add_row(
        str(len(sets)), str(sum(map(len, sets.values()))), *(f"{math.exp(each) - 1:.1%}" for each in errors)
    )
    console.print(table)


def replayed(console: Console, folder: Path) -> None:
    table = Table(
        "recording",
        "events",
        "learned",
        "guessed",
        "unchanged",
        "plans",
        "agree",
        title="What the next event measures",
    )
    for path in sorted(folder.glob("*__events.json")):
        events = read_events(path)
        names = sorted({name for event in events for action in event.plan for name in NAMES[action["name"]]})
        cycles = replay(
            events,
            planner=AStar(),
            actuators=[actuator(name) for name in names],
            limits=PlanConstraints(max_replicas=10, max_cpu=10.0),
        )
        forecasts = [each for cycle in cycles for each in cycle.forecasts]
        agree = sum(
            agrees(cycle.event, [action.actuator for action in cycle.plan.actions]) for cycle in cycles
        )
        table.add_row(
            path.name.partition("__")[0],
            str(len(events)),
            *(f"{median_error(forecasts, which):.1%}" for which in range(3)),
            str(sum(bool(cycle.plan.actions) for cycle in cycles)),
            f"{agree} of {len(cycles)}",
        )
    console.print(table)


def agrees(event: RecordedEvent, ours: Sequence[str]) -> bool:
    """Return whether both plans are empty or use the same actuator."""
    theirs = {name for action in event.plan for name in NAMES[action["name"]]}
    return bool(theirs & set(ours)) if theirs else not ours


def main() -> None:
    parser = ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    console = Console(width=120)
    print_errors(
        console,
        "infadapter: p99 by cores and load, each number of cores left out once",
        infadapter(folder / "infadapter"),
    )
    print_errors(
        console,
        "acprof: latency by cores and memory, each number of cores left out once",
        acprof(folder / "acprof"),
    )
    replayed(console, folder / "intel_ido")


if __name__ == "__main__":
    main()
