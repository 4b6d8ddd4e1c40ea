"""`make demo`: a believable cluster on a real API server, and what Trimtab already sees in it."""

import asyncio
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import track

from harness import UnavailableError, build
from harness.cluster import Cluster
from harness.objects import Object, pod
from harness.population import Place, Population
from trimtab.kube.auth import load_connection
from trimtab.kube.client import Client
from trimtab.kube.pace import RateLimit

EXAMPLE = Path(__file__).parents[2] / "examples" / "requested.py"
POPULATION = Population(600, namespaces=8)
console = Console(stderr=True)


def sized(place: Place) -> Object:
    """A pod of the size that its team tends to ask for."""
    chance = random.Random(place.app)
    taste = 1 + random.Random(place.namespace).random() * 3
    cpu, memory = chance.choice([100, 250, 500]) * taste, chance.choice([256, 512, 1024]) * taste
    return pod(
        place.name,
        namespace=place.namespace,
        node=place.node,
        app=place.app,
        cpu=f"{cpu:.0f}m",
        memory=f"{memory:.0f}Mi",
    )


async def fill(cluster: Cluster) -> None:
    rate = RateLimit(per_second=1e6, burst=1_000_000)
    async with Client(load_connection(kubeconfig=cluster.kubeconfig), rate=rate) as client:
        await POPULATION.write(
            client, make=sized, show=lambda things: track(things, "filling it", console=console)
        )


def main() -> None:
    console.print(f"Starting a real Kubernetes {build.KUBERNETES} control plane on this machine …")
    with (
        tempfile.TemporaryDirectory(prefix="trimtab-demo-") as folder,
        Cluster.start(Path(folder) / "cluster") as cluster,
    ):
        cluster.stop_controllers()
        asyncio.run(fill(cluster))
        environment = os.environ | {"KUBECONFIG": str(cluster.kubeconfig)}
        console.print("\n[bold]$ trimtab doctor[/]")
        subprocess.run([sys.executable, "-m", "trimtab", "doctor"], env=environment, check=False)
        console.print("\n[bold]$ python examples/requested.py[/]")
        subprocess.run([sys.executable, EXAMPLE], env=environment, check=True)
    console.print(
        "\nThe cluster is gone again. To look at your own: trimtab doctor; python examples/requested.py"
    )


if __name__ == "__main__":
    try:
        main()
    except UnavailableError as why:
        sys.exit(f"demo: {why}")
