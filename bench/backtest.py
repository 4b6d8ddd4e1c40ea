"""Samples a second, then trimtab beside each peer on recorded usage, hourly updates: cost against harm.

    make bench BENCH=backtest TRACES=FOLDER
    .venv/bin/python bench/backtest.py TRACES --chart chart.html --containers 300
    .venv/bin/python bench/backtest.py --generated --containers 40
    .venv/bin/python bench/backtest.py --generated --stabilization 24

TRACES is a folder with one folder a set, each with a parquet file of its name; `--generated` takes two weeks of the workload
generators instead, for which no constant was chosen. Each peer runs with its own defaults and
with its settings swept; trimtab is swept over the risk asked and over what counts as harm. Printed for each set, and
for all containers of all sets as one fleet, is what trimtab has at a peer's own harm or cost, read off between two of
its settings and divided by what the peer has: first with its defaults for all but the risk, then with each harm's own
best settings, as peers are compared; then the point of any peer's curve at which trimtab saves least. Where trimtab's
curve does not reach so far, its nearest end is taken.
"""

from __future__ import annotations

import os
import time
from argparse import ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from trimtab.lab.backtest import BacktestSchedule
from trimtab.lab.job import BacktestJob
from trimtab.lab.report import BacktestOutcome, render_page, render_section
from trimtab.lab.scores import Scores
from trimtab.lab.workloads import generate
from trimtab.usage.files import read_trace
from trimtab.usage.trace import Trace

TRACES = Path(os.environ.get("TRACES", "traces"))
RISKS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
OOMS = (0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 20.0)
OURS: list[dict[str, float]] = [
    {"cpu_risk": risk, "memory_risk": ooms} for risk, ooms in zip(RISKS, OOMS, strict=True)
]
OTHERWISE: list[list[dict[str, float]]] = [
    [{"cpu_risk": risk, "unserved": unserved} for risk in RISKS[1:-1]] for unserved in (0.0, 1.0)
]
"""Weights of the two measures of harm: time above the request, and unserved CPU."""
QUANTILES = (0.8, 0.9, 0.95, 0.98, 0.99)
PEERS: dict[str, list[dict[str, float]]] = {
    "vpa": [
        {},
        *({"target_percentile": q, "upper_percentile": max(q, 0.95), "pod_min_cpu": 0.0} for q in QUANTILES),
    ],
    "krr": [{}, *({"cpu_quantile": q} for q in QUANTILES)],
    "percentile": [{}, *({"quantile": q, "safety_factor": 1.0} for q in QUANTILES)],
    "peak": [{}, *({"cpu_quantile": q, "margin": 0.0} for q in QUANTILES)],
    "autopilot-window": [{}, *({"cpu_quantile": q, "margin": 0.0} for q in QUANTILES)],
    "autopilot-ml": [{}, *({"cpu_over_cost": cost} for cost in (1.0, 2.0, 10.0, 20.0, 50.0))],
    "seasonal": [{}],
}
FAMILIES = ("borg", "jvm", "flash_crowd", "arabesque", "azure", "alibaba", "diurnal_web", "batch", "step")
SEED, TWO_WEEKS = 99, 14 * 86400.0
FLEET = "all"
WORTH_HAVING = 0.1
"""The harm above which peers are not compared."""

HOURLY = BacktestSchedule()

console = Console(width=200)
Curve = list[dict[str, float]]


def main() -> None:
    parser = ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("traces", type=Path, nargs="?", default=TRACES)
    parser.add_argument("--chart", type=Path, help="write the chart of all containers to this HTML file")
    parser.add_argument("--containers", type=int, default=300, help="take at most so many of each set")
    parser.add_argument("--sets", help="only these sets, with commas between them")
    parser.add_argument(
        "--stabilization", type=float, default=0.0, help="hours for which sizes are kept, as policies ask"
    )
    parser.add_argument("--generated", action="store_true", help="replay workload generators, not TRACES")
    given = parser.parse_args()
    throughput()
    if not given.generated and not given.traces.is_dir():
        print(f"skipped: there are no traces at {given.traces}; name a folder that has some, or --generated")
        return
    wanted = given.sets.split(",") if given.sets else None
    sources = generated(given.containers) if given.generated else found(given.traces, wanted)
    sets = {name: some(trace, given.containers) for name, trace in sources}
    if not sets:
        print(f"skipped: none of the sets asked for has usage in {given.traces}")
        return
    peers = {name: choices for name, choices in PEERS.items() if _installed(name)}
    runs = [("oracle", {}), *(("trimtab", choice) for choice in (*OURS, *chain(*OTHERWISE)))]
    runs += [(name, choice) for name, choices in peers.items() for choice in choices]
    schedule = BacktestSchedule(stabilization=given.stabilization * 3600.0)
    results: dict[tuple[str, str], dict[str, Scores]] = {}
    for name, choice in track(runs, description="replaying", console=Console(stderr=True)):
        scores = {}
        for source, trace in sets.items():
            scores[source] = run(trace, name, choice, schedule)
        results[name, format_settings(choice)] = {**scores, FLEET: pooled(list(scores.values()))}
    for source in (*sets, FLEET):
        show(source, {key: scores[source] for key, scores in results.items()})
    if given.chart:
        outcomes = [
            BacktestOutcome(name, settings, scores[FLEET]) for (name, settings), scores in results.items()
        ]
        title = "Cost against harm, all sets"
        given.chart.write_text(render_page(title, [render_section(title, outcomes, [("set", *sets)])]))


def found(folder: Path, wanted: Sequence[str] | None) -> list[tuple[str, Trace]]:
    """The sets with usage in them."""
    traces = []
    for path in sorted(folder.iterdir()):
        file = path / f"{path.name}.parquet"
        if file.exists() and (wanted is None or path.name in wanted):
            try:
                traces.append((path.name, read_trace(file)))
            except Exception as error:  # noqa: BLE001 - a set without usage is reported and skipped
                console.print(f"passed over: {error}")
    return traces


def generated(containers: int) -> list[tuple[str, Trace]]:
    """Generate fleets of one kind each, always the same."""
    return [
        (name, generate(name, count=containers, seed=SEED, duration=TWO_WEEKS).to_trace())
        for name in FAMILIES
    ]


def some(trace: Trace, most: int) -> Trace:
    """At most so many containers, drawn evenly."""
    if trace.container_count <= most:
        return trace
    return trace.select_columns(np.sort(np.random.default_rng(0).permutation(trace.container_count)[:most]))


def _installed(name: str) -> bool:
    there = name in entry_points(group="trimtab.strategies").names
    if not there:
        console.print(f"passed over: strategy {name} is not installed")
    return there


def run(
    trace: Trace, name: str, settings: Mapping[str, float], schedule: BacktestSchedule = HOURLY
) -> Scores:
    return BacktestJob(name, name, {key: str(value) for key, value in settings.items()}).compute_scores(
        trace, schedule
    )


def format_settings(settings: Mapping[str, float]) -> str:
    return " ".join(f"{key}={value:g}" for key, value in settings.items())


def pooled(parts: Sequence[Scores]) -> Scores:
    """Combine all containers of all sets into one fleet."""

    def concatenate(of: Callable[[Scores], Any]) -> Any:
        return np.concatenate([of(part) for part in parts])

    arrays = {
        key: np.concatenate([getattr(part, key) for part in parts])
        for key in Scores.__slots__
        if key not in {"containers", "sums"}
    }
    return Scores(
        containers=tuple(name for part in parts for name in part.containers),
        sums=(concatenate(lambda part: part.sums[0]), concatenate(lambda part: part.sums[1])),
        **arrays,
    )


def at(curve: Curve, key: str, value: float, wanted: str) -> float:
    """Interpolate a curve at so much harm or cost."""
    ordered = sorted(curve, key=lambda point: point[key])
    places = np.log([max(point[key], 1e-6) for point in ordered])
    return float(np.interp(np.log(max(value, 1e-6)), places, [point[wanted] for point in ordered]))


def best(curves: Sequence[Curve], key: str, value: float, wanted: str) -> float:
    """The least that any curve has at so much harm or cost; one that does not go so low has no say."""
    reaching = [curve for curve in curves if min(point[key] for point in curve) <= value]
    return min(at(curve, key, value, wanted) for curve in reaching or curves[:1])


def show(source: str, results: Mapping[tuple[str, str], Scores]) -> None:
    """One set: trimtab's curve, each peer with its own defaults, and the peers' curves at their hardest."""
    summaries = {key: scores.summary() for key, scores in results.items()}
    curves = [
        [summaries["trimtab", format_settings(choice)] for choice in choices]
        for choices in (OURS, *OTHERWISE)
    ]
    head = ("STRATEGY", "SLACK", "UNDER", "P90", "UNSERVED", "CHANGES", "MEMORY", "OOM/DAY", "$/MONTH")
    compared = ("SLACK@UNDER", "SLACK@UNSERVED", "UNDER@SLACK", "P90@UNDER", "$@UNDER", "MEMORY@OOM")
    table = Table(*head, *compared, box=None, title=source, title_justify="left")
    for (name, settings), summary in summaries.items():
        if name == "trimtab":
            table.add_row(f"trimtab {settings}", *figures(summary))
        elif not settings:
            table.add_row(name, *figures(summary), *([] if name == "oracle" else ratios(curves[:1], summary)))
            if name != "oracle":
                table.add_row("  each harm's best", *[""] * (len(head) - 1), *ratios(curves, summary))
    console.print(table)
    for harm in ("cpu_under", "cpu_deficit"):
        hardest(curves, summaries, harm)


def hardest(
    curves: Sequence[Curve], summaries: Mapping[tuple[str, str], dict[str, float]], harm: str
) -> None:
    """The point of each peer's curve, within the reach of ours, at which trimtab saves least."""
    reach = [summary[harm] for curve in curves for summary in curve]
    found: dict[str, tuple[float, str]] = {}
    for (name, settings), peer in summaries.items():
        if name in {"trimtab", "oracle"} or not min(reach) <= peer[harm] <= min(max(reach), WORTH_HAVING):
            continue
        ratio = best(curves, harm, peer[harm], "cpu_slack") / peer["cpu_slack"]
        found[name] = max(found.get(name, (0.0, "")), (ratio, settings or "defaults"))
    shares = ", ".join(f"{name} {ratio:.3f} ({settings})" for name, (ratio, settings) in found.items())
    console.print(f"trimtab's share of their slack where it saves least, by {harm}: {shares}")


def figures(summary: Mapping[str, float]) -> list[str]:
    return [
        f"{summary['cpu_slack']:.3f}",
        f"{summary['cpu_under']:.4f}",
        f"{summary['cpu_under_p90']:.4f}",
        f"{summary['cpu_deficit']:.4f}",
        f"{summary['changes_day']:.2f}",
        f"{summary['memory_slack']:.3f}",
        f"{summary['ooms_day']:.3f}",
        f"{summary['dollars_month']:.0f}",
    ]


def ratios(curves: Sequence[Curve], peer: Mapping[str, float]) -> list[str]:
    pairs = (
        ("cpu_under", "cpu_slack"),
        ("cpu_deficit", "cpu_slack"),
        ("cpu_slack", "cpu_under"),
        ("cpu_under", "cpu_under_p90"),
        ("cpu_under", "dollars_month"),
        ("ooms_day", "memory_slack"),
    )
    return [
        f"{best(curves, given, peer[given], asked) / peer[asked]:.3f}" if peer[asked] > 0 else "-"
        for given, asked in pairs
    ]


def throughput() -> None:
    """Many containers at once, as in a cluster: 5-minute samples, both resources, hourly updates."""
    draw = np.random.default_rng(0)
    steps, containers = 288 * 3, 5000
    trace = Trace(
        names=tuple(map(str, range(containers))),
        start=0.0,
        step=300.0,
        cpu=draw.lognormal(-1.0, 0.5, (steps, containers)),
        memory=draw.lognormal(19.0, 1.0, containers) * draw.lognormal(0.0, 0.01, (steps, containers)),
    )
    run(trace.select_columns(np.arange(2)), "trimtab", {})
    begun = time.process_time()
    run(trace, "trimtab", {})
    spent = time.process_time() - begun
    console.print(
        f"throughput: {trace.sample_count / spent / 1e6:.2f} million container-samples/s on one core (aim: 2)"
    )


if __name__ == "__main__":
    main()
