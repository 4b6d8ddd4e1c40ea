"""Show what the pods of a cluster request, by namespace, read through Trimtab's informers.

    python examples/requested.py              the cluster of your current kubeconfig context
    python examples/requested.py --context staging

It reads nodes and pods once; the informers could also keep watching them.
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
    """Fill two caches concurrently and return their contents."""
    all_nodes = Informer(client, NODES, node_projection())
    all_pods = Informer(client, PODS, pod_projection(), scope=RUNNING)
    watches = [asyncio.create_task(informer.run()) for informer in (all_nodes, all_pods)]
    await asyncio.gather(all_nodes.wait_synced(), all_pods.wait_synced())
    for task in watches:
        task.cancel()
    return list(all_nodes.cache), list(all_pods.cache)


def requested(pod: Pod) -> tuple[int, int]:
    """Return the millicores and bytes that the scheduler reserves for a pod."""
    long_running = [container.resources for container in pod.containers if container.role != "init"]
    return (
        sum(resources.cpu_request or 0 for resources in long_running),
        sum(resources.memory_request or 0 for resources in long_running),
    )


def show(all_nodes: list[Node], all_pods: list[Pod], *, seconds: float) -> None:
    cores = sum(node.allocatable.cpu for node in all_nodes) / 1000
    gib = sum(node.allocatable.memory for node in all_nodes) / 2**30
    namespaces: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for pod in all_pods:
        cpu, memory = requested(pod)
        one = (1, cpu / 1000, memory / 2**30)
        namespaces[pod.namespace] = [sum(pair) for pair in zip(namespaces[pod.namespace], one, strict=True)]
    console = Console()
    console.print(
        f"\n[bold]{len(all_nodes):,} nodes[/] with {cores:,.0f} cores and {gib:,.0f} GiB, "
        f"[bold]{len(all_pods):,} pods[/]; read in {seconds:.1f} s. Requests by namespace:\n"
    )
    table = Table("namespace", "pods", "cores", "", "GiB", "", box=None, header_style="dim")
    for name, (count, own_cores, own_gib) in sorted(namespaces.items(), key=lambda item: -item[1][1])[:12]:
        table.add_row(
            name,
            f"{count:,.0f}",
            f"{own_cores:,.1f}",
            bar(own_cores, cores),
            f"{own_gib:,.1f}",
            bar(own_gib, gib),
        )
    total = [sum(each[field] for each in namespaces.values()) for field in range(3)]
    table.add_section()
    table.add_row(
        "[bold]all",
        f"{total[0]:,.0f}",
        f"{total[1]:,.1f}",
        bar(total[1], cores),
        f"{total[2]:,.1f}",
        bar(total[2], gib),
    )
    console.print(table)


def bar(part: float, of: float) -> ProgressBar:
    return ProgressBar(total=of or 1, completed=part, width=24)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--context", help="the kubeconfig context to use instead of the current one")
    options = parser.parse_args()
    start = time.monotonic()
    async with Client(load_connection(context=options.context)) as client:
        all_nodes, all_pods = await read(client)
    show(all_nodes, all_pods, seconds=time.monotonic() - start)


if __name__ == "__main__":
    asyncio.run(main())
