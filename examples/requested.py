"""What the pods of a cluster ask for, team by team, straight from Trimtab's cache of it.

    python examples/requested.py              the cluster of your current kubeconfig context
    python examples/requested.py --context staging

It lists nodes and pods once through two informers, which then could go on following them for ever.
"""

import argparse
import asyncio
import time
from collections import defaultdict

from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table

from trimtab.kube import (
    NODES,
    PODS,
    Client,
    Informer,
    Node,
    Pod,
    Scope,
    load_connection,
    node_projection,
    pod_projection,
)

RUNNING = Scope(fields="status.phase!=Succeeded,status.phase!=Failed")


async def read(client: Client) -> tuple[list[Node], list[Pod]]:
    """Fill two caches side by side and return what they hold."""
    all_nodes = Informer(client, NODES, node_projection())
    all_pods = Informer(client, PODS, pod_projection(), scope=RUNNING)
    following = [asyncio.create_task(informer.run()) for informer in (all_nodes, all_pods)]
    await asyncio.gather(all_nodes.wait_synced(), all_pods.wait_synced())
    for task in following:
        task.cancel()
    return list(all_nodes.cache), list(all_pods.cache)


def requested(pod: Pod) -> tuple[int, int]:
    """Millicores and bytes that the scheduler sets aside for a pod."""
    long_running = [container.resources for container in pod.containers if container.role != "init"]
    return (
        sum(resources.cpu_request or 0 for resources in long_running),
        sum(resources.memory_request or 0 for resources in long_running),
    )


def show(all_nodes: list[Node], all_pods: list[Pod], *, seconds: float) -> None:
    cores = sum(node.allocatable.cpu for node in all_nodes) / 1000
    gib = sum(node.allocatable.memory for node in all_nodes) / 2**30
    teams: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for pod in all_pods:
        cpu, memory = requested(pod)
        asked = (1, cpu / 1000, memory / 2**30)
        teams[pod.namespace] = [sum(pair) for pair in zip(teams[pod.namespace], asked, strict=True)]
    console = Console()
    console.print(
        f"\n[bold]{len(all_nodes):,} nodes[/] with {cores:,.0f} cores and {gib:,.0f} GiB, "
        f"[bold]{len(all_pods):,} pods[/]; read in {seconds:.1f} s. What they set aside:\n"
    )
    table = Table("namespace", "pods", "cores", "", "GiB", "", box=None, header_style="dim")
    for name, (count, team_cores, team_gib) in sorted(teams.items(), key=lambda item: -item[1][1])[:12]:
        table.add_row(
            name,
            f"{count:,.0f}",
            f"{team_cores:,.1f}",
            bar(team_cores, cores),
            f"{team_gib:,.1f}",
            bar(team_gib, gib),
        )
    whole = [sum(team[field] for team in teams.values()) for field in range(3)]
    table.add_section()
    table.add_row(
        "[bold]all",
        f"{whole[0]:,.0f}",
        f"{whole[1]:,.1f}",
        bar(whole[1], cores),
        f"{whole[2]:,.1f}",
        bar(whole[2], gib),
    )
    console.print(table)


def bar(part: float, whole: float) -> ProgressBar:
    return ProgressBar(total=whole or 1, completed=part, width=24)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--context", help="the kubeconfig context to use instead of the current one")
    options = parser.parse_args()
    began = time.monotonic()
    async with Client(load_connection(context=options.context)) as client:
        all_nodes, all_pods = await read(client)
    show(all_nodes, all_pods, seconds=time.monotonic() - began)


if __name__ == "__main__":
    asyncio.run(main())
