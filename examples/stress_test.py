"""Run a generated day on a pod in ten minutes, and see how a strategy sizes it.

    python examples/stress_test.py NAMESPACE [STRATEGY]
    python examples/stress_test.py NAMESPACE --hours 3 --minutes 1    only the first hours

It uses your kubeconfig, creates a small Deployment and its Service in the namespace, and deletes them at the end. The steps
are those of smart-kube's stress test: generate a workload, upload it to the utilization server, register the pod and its
Service, then let the pod follow the workload while its usage is measured and it is resized in place.
"""

import argparse
import asyncio

from trimtab.kube import Client, load_connection
from trimtab.lab import EmulationConfig, LoadProfile, StressStrategy, generate, run_stress


async def main(namespace: str, strategy: str, *, hours: float, minutes: float, reach: dict[str, str]) -> None:
    day = generate("diurnal_web", seed=7, step=1800.0, duration=86400.0, rate=20.0, spread=0.0, mib=48.0)
    periods = max(1, round(hours * 2))  # of half an hour each
    place = EmulationConfig(
        namespace=namespace, run="a-day", period=minutes * 60 / periods, source_settings=reach
    )
    settings = {"min_samples": 4} if strategy == "percentile" else {}
    async with Client(load_connection()) as client:
        journal = await run_stress(
            client,
            {"a-day": LoadProfile.from_workload(day)},
            place,
            under_test=StressStrategy(name=strategy, settings=settings, update=7200.0),
            periods=periods,
            on_progress=lambda text, _: print(text, end="\r", flush=True),
        )
    for entry in journal.entries:
        bar = "#" * round(entry.used_cpu * 100) if entry.used_cpu > 0 else ""
        print(
            f"{entry.period / 2:5.1f} h  requested {entry.cpu_request:.2f}  needed {entry.wanted_cpu:.2f}  used {bar}"
        )
    for name, value in journal.summary().items():
        print(f"{name:15} {value:,.3g}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("namespace")
    parser.add_argument("strategy", nargs="?", default="percentile")
    parser.add_argument("--hours", type=float, default=24.0, help="the number of hours of the day")
    parser.add_argument("--minutes", type=float, default=10.0, help="the minutes that they take")
    parser.add_argument(
        "--source-setting",
        action="append",
        default=[],
        help="a setting of the usage source, such as reach=direct",
    )
    given = parser.parse_args()
    reach = dict(each.split("=", 1) for each in given.source_setting)
    asyncio.run(main(given.namespace, given.strategy, hours=given.hours, minutes=given.minutes, reach=reach))
