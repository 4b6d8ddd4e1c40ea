"""Many objects at once, written to a cluster whose controllers are stopped: nodes and running pods, all of them names.

What a benchmark reads and what the demo shows. Writing goes through the API server, as everything else does.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from harness.objects import Object, node, pod, pod_status
from trimtab.kube.client import Client, PatchType
from trimtab.kube.resources import NAMESPACES, NODES, PODS, Resource

SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
WRITERS = 32

T = TypeVar("T")
Progress = Callable[[Sequence[Any]], Iterable[Any]]


@dataclass(frozen=True)
class Place:
    """Where one pod belongs."""

    namespace: str
    name: str
    app: str
    node: str


@dataclass(frozen=True)
class Population:
    """So many pods in workloads of five, spread over namespaces and nodes."""

    pods: int
    namespaces: int = 50
    pods_a_node: int = 40
    pods_a_workload: int = 5

    def places(self) -> Iterator[Place]:
        for number in range(self.pods):
            workload = number // self.pods_a_workload
            app = f"service-{workload:05}"
            yield Place(
                namespace=self.namespace(workload),
                name=f"{app}-7c9f8d6b5-{number:06x}",
                app=app,
                node=f"node-{number // self.pods_a_node:05}",
            )

    def namespace(self, number: int) -> str:
        return f"team-{number % self.namespaces:02}"

    async def write(
        self, client: Client, *, make: Callable[[Place], Object] | None = None, show: Progress | None = None
    ) -> None:
        """Write namespaces, nodes and pods, each with the status that a kubelet would report.

        `make` gives a place another pod than the usual one; `show` is given each list before it is worked through.
        """
        for number in range(min(self.namespaces, self.pods)):
            await client.create(NAMESPACES, {"metadata": {"name": self.namespace(number)}})
            # Without the controllers nobody else makes it, and without it no pod is let in.
            account = {"metadata": {"name": "default"}}
            await client.create(SERVICE_ACCOUNTS, account, namespace=self.namespace(number))
        nodes = sorted({place.node for place in self.places()})
        await share(nodes, lambda name: client.create(NODES, node(name)), show=show)

        async def write_pod(place: Place) -> None:
            body = (
                make(place)
                if make
                else pod(place.name, namespace=place.namespace, node=place.node, app=place.app)
            )
            await client.create(PODS, body, namespace=place.namespace)
            await client.patch(
                PODS,
                place.name,
                {"status": pod_status(body)},
                type=PatchType.STRATEGIC,
                namespace=place.namespace,
                subresource="status",
            )

        await share(list(self.places()), write_pod, show=show)


async def share(
    things: Sequence[T], work: Callable[[T], Awaitable[object]], *, show: Progress | None = None
) -> None:
    """Work through a list with several writers at once."""
    left = iter(show(things) if show else things)

    async def write() -> None:
        for thing in left:
            await work(thing)

    await asyncio.gather(*(write() for _ in range(WRITERS)))
