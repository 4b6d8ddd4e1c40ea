"""Write thousands of nodes and running pods to a cluster whose controllers are stopped.

What a benchmark reads and what the demo shows. Writing goes through the API server, as everything else does.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from harness.builders.objects import Object, node, owner_uid, pod, pod_status
from harness.cluster.etcd import Etcd
from trimtab.kube.rest.client import Client, PatchType
from trimtab.kube.rest.resources import NAMESPACES, NODES, PODS, Resource

SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
WRITERS = 32

T = TypeVar("T")
Progress = Callable[[Sequence[Any]], Iterable[Any]]


@dataclass(frozen=True)
class Place:
    """The node and the workload of one pod."""

    namespace: str
    name: str
    app: str
    node: str

    @property
    def key(self) -> bytes:
        """Return the key under which the API server keeps it in etcd."""
        return f"/registry/pods/{self.namespace}/{self.name}".encode()

    @property
    def owner_uid(self) -> str:
        return owner_uid(self.app, self.namespace)


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
        await self._write_ground(client, show=show)
        await share(list(self.places()), lambda place: _write_pod(client, place, make), show=show)

    async def multiply(self, client: Client, etcd: str, *, show: Progress | None = None) -> None:
        """As `write`, but only the first pod goes through the API server; etcd is given the others as its copies.

        What the API server stored for the first is stored for each other, with the names that differ put in: all
        have the same length, so the encoding stays right. Many times as fast, and served as if written one by one.
        """
        await self._write_ground(client, show=show)
        first, *others = self.places()
        await _write_pod(client, first, None)
        async with Etcd(etcd) as kept:
            stored = await kept.get(first.key)
            own_uid = (await client.get(PODS, first.name, namespace=first.namespace))["metadata"]["uid"]

            async def copy(place: Place) -> None:
                value = stored.replace(own_uid.encode(), str(uuid.uuid4()).encode())
                for field in ("owner_uid", "name", "app", "namespace", "node"):
                    value = value.replace(getattr(first, field).encode(), getattr(place, field).encode())
                await kept.put(place.key, value)

            await share(others, copy, show=show)

    async def touch(self, etcd: str, *, events: int, per_second: float, show: Progress | None = None) -> None:
        """Store pods again as they are, at this rate: to everybody who watches, each is a change."""
        clock = asyncio.get_running_loop().time
        async with Etcd(etcd) as kept:
            places = list(islice(self.places(), 500))
            stored = [await kept.get(place.key) for place in places]
            began = clock()

            async def put(number: int) -> None:
                await asyncio.sleep(began + number / per_second - clock())
                place = number % len(places)
                await kept.put(places[place].key, stored[place])

            await share(range(events), put, show=show)

    async def _write_ground(self, client: Client, *, show: Progress | None) -> None:
        for number in range(min(self.namespaces, self.pods)):
            await client.create(NAMESPACES, {"metadata": {"name": self.namespace(number)}})
            # Without the controllers it would not exist, and without it no pod is admitted.
            account = {"metadata": {"name": "default"}}
            await client.create(SERVICE_ACCOUNTS, account, namespace=self.namespace(number))
        nodes = sorted({place.node for place in self.places()})
        await share(nodes, lambda name: client.create(NODES, node(name)), show=show)


async def _write_pod(client: Client, place: Place, make: Callable[[Place], Object] | None) -> None:
    body = (make or _usual)(place)
    await client.create(PODS, body, namespace=place.namespace)
    await client.patch(
        PODS,
        place.name,
        {"status": pod_status(body)},
        type=PatchType.STRATEGIC,
        namespace=place.namespace,
        subresource="status",
    )


def _usual(place: Place) -> Object:
    return pod(place.name, namespace=place.namespace, node=place.node, app=place.app)


async def share(
    things: Sequence[T], work: Callable[[T], Awaitable[object]], *, show: Progress | None = None
) -> None:
    """Work through a list with several writers at once."""
    left = iter(show(things) if show else things)

    async def write() -> None:
        for thing in left:
            await work(thing)

    await asyncio.gather(*(write() for _ in range(WRITERS)))
