"""Let a pod live through a made-up day in ten minutes, and see how a strategy keeps up with it.

    python examples/stress_test.py NAMESPACE [STRATEGY]

Uses your kubeconfig. It makes one small Deployment and its Service in the namespace and takes them away again. Step by
step it is what smart-kube's stress test does: make a workload, upload it to the utilisation server, register the pod and
its Service, connect them, then lead the pod through it period by period while what it uses is measured and it is
resized in place.
"""

import asyncio
import sys

from trimtab.kube.auth import load_connection
from trimtab.kube.client import Client
from trimtab.lab.emulator import Course, Place, Recommender, stress
from trimtab.lab.workloads import generate


async def main(namespace: str, strategy: str) -> None:
    day = generate("diurnal_web", seed=7, step=1800.0, duration=86400.0, rate=20.0, spread=0.0, mib=48.0)
    place = Place(namespace=namespace, run="a-day", period=12.5)  # 48 half hours in ten minutes
    settings = {"min_samples": 4} if strategy == "percentile" else {}
    async with Client(load_connection()) as client:
        journal = await stress(
            client,
            {"a-day": Course.of(day)},
            place,
            recommender=Recommender(name=strategy, settings=settings, update=7200.0),
            told=lambda text, _: print(text, end="\r", flush=True),
        )
    for entry in journal.entries:
        bar = "#" * round(entry.used_cpu * 100) if entry.used_cpu > 0 else ""
        print(
            f"{entry.period / 2:5.1f} h  asked {entry.cpu_request:.2f}  wanted {entry.wanted_cpu:.2f}  used {bar}"
        )
    for name, value in journal.summary().items():
        print(f"{name:15} {value:,.3g}")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    asyncio.run(main(sys.argv[1], *sys.argv[2:3] or ["percentile"]))
