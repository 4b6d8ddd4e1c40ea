"""Build the Deployments and ReplicaSets above a population's pods, and policies for them.

As a population's pods they are copied in etcd; policies are few, and written.
"""

import uuid
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from harness.builders.bulk_objects import Population, Progress, share
from harness.builders.objects import Object, owner_uid, pod
from harness.cluster.etcd import Etcd
from trimtab.kube.rest.client import Client, PatchType
from trimtab.kube.rest.resources import DEPLOYMENTS, OPTIMIZATION_POLICIES, REPLICA_SETS, Resource

HASH = "7c9f8d6b5"


@dataclass(frozen=True)
class Service:
    """One workload: its Deployment and its ReplicaSet."""

    namespace: str
    app: str
    squad: str
    """The label by which a policy selects it."""

    @property
    def uid(self) -> str:
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self.app}.{self.namespace}"))

    @property
    def replica_set_uid(self) -> str:
        return owner_uid(self.app, self.namespace)

    @property
    def replica_set(self) -> str:
        return f"{self.app}-{HASH}"


@dataclass(frozen=True)
class Services:
    """All workloads of a population, in squads of so many."""

    population: Population
    a_squad: int = 5

    def __iter__(self) -> Iterator[Service]:
        population = self.population
        for number in range(population.pods // population.pods_a_workload):
            # Those of a squad are in one namespace.
            place = number // population.namespaces // self.a_squad
            squad = f"squad-{place * population.namespaces + number % population.namespaces:05}"
            yield Service(population.namespace(number), f"service-{number:05}", squad)

    async def multiply(self, client: Client, etcd: str, *, show: Progress | None = None) -> None:
        """Make them all; the population's namespaces are there."""
        services = list(self)
        first, pods = services[0], self.population.pods_a_workload
        made = await _make(client, DEPLOYMENTS, _deployment(first, pods), _rolled_out(pods))
        below = await _make(
            client, REPLICA_SETS, _replica_set(first, pods, owner=made["metadata"]["uid"]), _running(pods)
        )
        uids = {made["metadata"]["uid"]: "uid", below["metadata"]["uid"]: "replica_set_uid"}
        async with Etcd(etcd) as kept:
            for kind, name in (("deployments", "app"), ("replicasets", "replica_set")):
                await share(services, await _copier(kept, kind, name, first, uids), show=show)

    async def write_policies(
        self, client: Client, spec: Callable[[str], Object], *, show: Progress | None = None
    ) -> None:
        """A policy for each squad in its namespace; `spec` makes what it says."""
        squads = sorted({(service.namespace, service.squad) for service in self})

        async def write(policy: tuple[str, str]) -> None:
            namespace, squad = policy
            kind = {"apiVersion": OPTIMIZATION_POLICIES.api_version, "kind": OPTIMIZATION_POLICIES.kind}
            body = {**kind, "metadata": {"name": squad}, "spec": spec(squad)}
            await client.create(OPTIMIZATION_POLICIES, body, namespace=namespace)

        await share(squads, write, show=show)


async def _copier(
    kept: Etcd, kind: str, name: str, first: Service, uids: dict[str, str]
) -> Callable[[Service], Awaitable[None]]:
    def key(service: Service) -> bytes:
        return f"/registry/{kind}/{service.namespace}/{getattr(service, name)}".encode()

    stored = await kept.get(key(first))

    async def copy(service: Service) -> None:
        value = stored
        for uid, field in uids.items():
            value = value.replace(uid.encode(), getattr(service, field).encode())
        for field in ("app", "squad", "namespace"):
            value = value.replace(getattr(first, field).encode(), getattr(service, field).encode())
        await kept.put(key(service), value)

    return copy


async def _make(client: Client, resource: Resource, body: Object, status: Object) -> Object:
    namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
    await client.create(resource, body, namespace=namespace)
    return await client.patch(
        resource, name, {"status": status}, type=PatchType.MERGE, namespace=namespace, subresource="status"
    )


def _deployment(service: Service, replicas: int) -> Object:
    return {
        "metadata": _metadata(service, service.app),
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app.kubernetes.io/name": service.app}},
            "template": _template(service),
        },
    }


def _replica_set(service: Service, replicas: int, *, owner: str) -> Object:
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": service.app, "uid": owner}
    metadata = _metadata(service, service.replica_set)
    metadata["labels"]["pod-template-hash"] = HASH
    metadata["ownerReferences"] = [{**reference, "controller": True, "blockOwnerDeletion": True}]
    template = _template(service)
    return {
        "metadata": metadata,
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app.kubernetes.io/name": service.app, "pod-template-hash": HASH}},
            "template": template,
        },
    }


def _metadata(service: Service, name: str) -> Object:
    labels = {"app.kubernetes.io/name": service.app, "squad": service.squad}
    return {"name": name, "namespace": service.namespace, "labels": labels}


def _template(service: Service) -> Object:
    made = pod("template", namespace=service.namespace, app=service.app, owned=False)
    return {
        "metadata": {"labels": made["metadata"]["labels"], "annotations": made["metadata"]["annotations"]},
        "spec": made["spec"],
    }


def _rolled_out(replicas: int) -> Object:
    return {
        **_running(replicas),
        "updatedReplicas": replicas,
        "conditions": [{"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable"}],
    }


def _running(replicas: int) -> Object:
    counts = dict.fromkeys(("replicas", "readyReplicas", "availableReplicas"), replicas)
    return {"observedGeneration": 1, **counts}
