"""One service with a day of load in two and a half minutes on the real node, under fixed requests, a HorizontalPodAutoscaler
or an Intent.

    PYTHONPATH=tests .venv/bin/python bench/intents.py                  all three, one after the other, and the picture
    PYTHONPATH=tests .venv/bin/python bench/intents.py run hpa          one of them; its samples are kept in --folder
    PYTHONPATH=tests .venv/bin/python bench/intents.py picture          from the samples that are there

Each second it is noted how much CPU the pods ask for, and what the 95th percentile of latency is by Prometheus. Two
figures decide: requested core-hours, and minutes in which the objective was missed. Fixed requests are
those that an owner would write who knows the peak (`fixed`), or the average (`lean`).
"""

import json
import secrets
import shutil
import tempfile
import time
from argparse import ArgumentParser
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from harness.builders.busybox_workloads import autoscaler
from harness.cluster.cluster import Cluster
from harness.e2e.intent_e2e import APP, Showcase, deployment, intent, profile, wait_while_pods_start

WANTED = 0.25
LOAD = ((20, 4), (50, 25), (30, 12), (50, 2))
"""So many seconds of so many requests a second, each of eight milliseconds of CPU."""
PEAK, MEAN = "400m", "100m"
"""The fixed sizes for the peak and for the average load."""
WAYS = ("fixed", "lean", "hpa", "hpa-hasty", "intent")
"""The autoscaler waits five minutes before it scales in; the hasty one waits about as long as the intent does."""
HASTY = {
    "interval": "2s",
    "coolDown": "8s",
    "releaseAfter": "6s",
    "maxSampleAge": "10s",
    "learningInterval": "15s",
    "guardrails": [{"maxReplicas": 4, "maxCpu": "1"}],
}
PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "intents.png"

Sample = dict[str, float | None]


def run(way: str, folder: Path) -> list[Sample]:
    """A day in one way."""
    scratch = Path(tempfile.mkdtemp(dir=folder))
    try:
        with Cluster.start(scratch / "cluster", node=True) as cluster:
            (scratch / "case").mkdir()
            name = f"bench-{secrets.token_hex(3)}"
            with Showcase(cluster, scratch / "case", namespace=name, intents=HASTY) as shop:
                return _day(shop, way)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _day(shop: Showcase, way: str) -> list[Sample]:
    shop.apply(deployment(cpu=PEAK if way == "fixed" else MEAN), profile())
    if way.startswith("hpa"):
        scaler = autoscaler(APP, utilization=60, least=1, most=4)
        # The tests' own waits out two minutes of noise before it scales out.
        hasty = {"scaleDown": {"stabilizationWindowSeconds": 10}}
        scaler["spec"]["behavior"] = hasty if way == "hpa-hasty" else {}
        shop.apply(scaler)
    wait_while_pods_start(shop)
    shop.load(LOAD[0][1])
    if way == "intent":
        shop.apply(intent(seconds=WANTED))
        shop.operator.start()
    time.sleep(20)  # until there is something to measure, for everybody alike
    started, samples = time.monotonic(), []
    for seconds, rate in LOAD:
        shop.load(rate)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            at = time.monotonic() - started
            samples.append({"at": at, "rate": rate, "millicores": shop.cpu(), "p95": shop.p95()})
            time.sleep(max(0.0, 1.0 - (time.monotonic() - started - at)))
    return samples


def figures(samples: list[Sample]) -> tuple[float, float, float]:
    """Core-hours asked for, minutes missed, and the whole time in minutes."""
    cores = missed = 0.0
    for one, other in pairwise(samples):
        span = (other["at"] or 0.0) - (one["at"] or 0.0)
        cores += span * (one["millicores"] or 0.0) / 1000 / 3600
        missed += span / 60 if (one["p95"] or 0.0) > WANTED else 0.0
    return cores, missed, ((samples[-1]["at"] or 0.0) - (samples[0]["at"] or 0.0)) / 60


def table(found: dict[str, list[Sample]]) -> Table:
    made = Table("", "core-hours asked for", "minutes missed", "of minutes")
    for way, samples in found.items():
        cores, missed, whole = figures(samples)
        made.add_row(way, f"{cores:.4f}", f"{missed:.2f}", f"{whole:.1f}")
    return made


def picture(found: dict[str, list[Sample]], file: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(9, 5.5))
    for way, samples in found.items():
        times = [each["at"] for each in samples]
        above.plot(times, [each["p95"] or float("nan") for each in samples], label=way)
        below.step(times, [(each["millicores"] or 0) / 1000 for each in samples], where="post", label=way)
    above.axhline(WANTED, color="black", linestyle="--", linewidth=0.8)
    above.set(ylabel="p95 latency, s (dashed: wanted)", yscale="log")
    below.set(ylabel="cores asked for", xlabel="seconds")
    load = below.twinx()
    first = next(iter(found.values()))
    load.fill_between(
        [each["at"] for each in first],
        [each["rate"] for each in first],
        step="post",
        alpha=0.12,
        color="gray",
    )
    load.set(ylabel="requests/s (grey)")
    above.legend(loc="upper right", ncols=len(found))
    figure.tight_layout()
    figure.savefig(file, dpi=110)


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("command", nargs="?", choices=("all", "run", "picture"), default="all")
    parser.add_argument("way", nargs="?", choices=WAYS, default="intent")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "trimtab-intents")
    options: Any = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for way in {"all": WAYS, "run": (options.way,), "picture": ()}[options.command]:
        (options.folder / f"{way}.json").write_text(json.dumps(run(way, options.folder)))
    found = {
        way: json.loads(file.read_text()) for way in WAYS if (file := options.folder / f"{way}.json").exists()
    }
    Console().print(table(found))
    if options.command != "run":
        picture(found, PICTURE)


if __name__ == "__main__":
    main()
