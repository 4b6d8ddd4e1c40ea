"""Generate a realistic cluster: services, databases, batch and others, with requests as people write them.

Who uses how much comes from the workload generators. What is asked for is a guess at the peak, mostly far too much and
sometimes too little, in the round numbers that people like; about half set no CPU limit. The nodes are as many as
these requests need, and a few more. For a recording the same is done: each of its series is a workload.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from trimtab.api.quantity import GIB, MIB
from trimtab.errors import TrimtabError
from trimtab.kube.kinds.pods import Resources
from trimtab.lab.simulator.scenario import ContainerSpec, NodePool, Scenario, ServiceSpec, WorkloadSpec
from trimtab.lab.simulator.scheduler import count_packed_nodes
from trimtab.lab.workloads import GeneratedWorkload, generate
from trimtab.usage.trace import Floats, Trace

GENERATOR_SHARES = {
    "diurnal_web": ("shop", 0.4),
    "jvm": ("shop", 0.15),
    "borg": ("platform", 0.15),
    "batch": ("data", 0.1),
    "step": ("data", 0.1),
    "flash_crowd": ("shop", 0.05),
    "memory_leak": ("platform", 0.05),
}
"""The namespace of the workloads of each generator, and their share of all workloads."""

_MILLICORES = (10, 25, 50, 100, 200, 250, 500, 1000, 1500, 2000, 3000, 4000, 6000, 8000, 12000, 16000)
_MEBIBYTES = (32, 64, 128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 32768)
_NODE_HEADROOM = 1.15
"""The nodes of the cluster, as a multiple of the nodes that the requests need."""
STEP = 300.0
"""The default seconds of a step."""
_DEFAULT_MEMORY = 64.0 * MIB
"""The memory of a container without recorded memory."""


def generate_cluster(
    *,
    workloads: int = 40,
    days: float = 7.0,
    step: float = STEP,
    seed: int = 0,
    node_cpu: float = 8.0,
    node_memory: float = 32.0 * GIB,
) -> Scenario:
    """Generate a cluster with this number of workloads; the same seed gives the same cluster."""
    drawn: list[tuple[str, GeneratedWorkload]] = []
    shares = np.cumsum([share for _, share in GENERATOR_SHARES.values()])
    before = 0
    for (kind, (namespace, _)), share in zip(GENERATOR_SHARES.items(), shares / shares[-1], strict=True):
        count, before = round(workloads * share) - before, round(workloads * share)
        if count:
            drawn.append(
                (namespace, generate(kind, count=count, seed=seed, step=step, duration=days * 86400))
            )
    demand = Trace(
        names=tuple(name.replace("_", "-") for _, each in drawn for name in each.names),
        start=drawn[0][1].start,
        step=step,
        cpu=np.ascontiguousarray(np.concatenate([each.cpu for _, each in drawn]).T),
        memory=np.ascontiguousarray(np.concatenate([each.memory for _, each in drawn]).T),
    )
    namespaces = [namespace for namespace, each in drawn for _ in range(each.series)]
    serves = [each.requests is not None for _, each in drawn for _ in range(each.series)]
    return generate_cluster_from_trace(
        demand,
        namespaces=namespaces,
        is_service=serves,
        seed=seed,
        node_cpu=node_cpu,
        node_memory=node_memory,
    )


def generate_cluster_from_trace(
    demand: Trace,
    *,
    namespaces: Sequence[str] | None = None,
    is_service: Sequence[bool] | None = None,
    replicas: int | None = None,
    seed: int = 0,
    node_cpu: float = 8.0,
    node_memory: float = 32.0 * GIB,
) -> Scenario:
    """Generate a cluster with a workload for each series; each has `replicas`, or a number that fits its kind.

    A series without any CPU is left out; one without any memory holds a little, for no process runs in none.
    """
    rng = np.random.default_rng([seed, 20])
    demand = _fill_missing_memory(demand)
    found: list[WorkloadSpec] = []
    taken: set[str] = set()
    for series, name in enumerate(demand.names):
        if np.isnan(demand.cpu[:, series]).all():
            continue
        unique_name = _make_unique_name(name, series, taken=taken)
        taken.add(unique_name)
        service = is_service[series] if is_service else False
        replica_count = replicas or int(rng.integers(2, 9) if service else rng.choice([1, 1, 2, 3]))
        resources = _guess_resources(
            demand.cpu[:, series], demand.memory[:, series], rng, node_cpu, node_memory
        )
        found.append(
            WorkloadSpec(
                name=unique_name,
                namespace=namespaces[series] if namespaces else "default",
                kind="StatefulSet" if not service and rng.random() < 0.3 else "Deployment",
                replicas=replica_count,
                containers=(ContainerSpec(demand_series=series, resources=resources),),
                service=_build_service(demand.cpu[:, series]) if service else None,
            )
        )
    if not found:
        raise TrimtabError("the recording has no series with CPU usage; there is nothing to simulate")
    # The largest were there first, or they would never have found a place.
    found.sort(key=lambda each: -(each.containers[0].resources.cpu_request or 0))
    sizes = np.array(
        [
            (each.containers[0].resources.cpu_request, each.containers[0].resources.memory_request)
            for each in found
            for _ in range(each.replicas)
        ],
        np.float64,
    )
    pool = NodePool(count=1, cpu=node_cpu, memory=node_memory)
    needed = count_packed_nodes(
        sizes[:, 0],
        sizes[:, 1],
        node_cpu=pool.allocatable_cpu * 1000,
        node_memory=pool.allocatable_memory,
        node_pods=pool.pods,
    )
    pool = NodePool(count=math.ceil(needed * _NODE_HEADROOM), cpu=node_cpu, memory=node_memory)
    return Scenario(pools=(pool,), workloads=tuple(found), demand=demand)


def _fill_missing_memory(demand: Trace) -> Trace:
    unknown = np.isnan(demand.memory).all(axis=0) & ~np.isnan(demand.cpu)
    return (
        replace(demand, memory=np.where(unknown, _DEFAULT_MEMORY, demand.memory)) if unknown.any() else demand
    )


def _guess_resources(
    cpu: Floats, memory: Floats, rng: np.random.Generator, node_cpu: float, node_memory: float
) -> Resources:
    """Return the requests that a user would set for a service with this peak usage."""
    peak, held = float(np.nanquantile(cpu, 0.99)), float(np.nanmax(memory))
    request = _round_up(peak * 1000 * rng.lognormal(0.5, 0.6), _MILLICORES, most=node_cpu * 800)
    amount = _round_up(
        held / MIB * max(rng.lognormal(0.4, 0.4), 0.95), _MEBIBYTES, most=node_memory / MIB * 0.8
    )
    request_memory = int(amount * MIB)
    limits = rng.random()
    cpu_limit = None if limits < 0.5 else max(2 * request, int(peak * 1200)) if limits < 0.85 else request
    memory_limit = request_memory if rng.random() < 0.4 else 2 * request_memory
    return Resources(request, cpu_limit, request_memory, memory_limit)


def _round_up(amount: float, steps: Sequence[int], *, most: float) -> int:
    """Return the next round number, up to the largest one."""
    possible = [step for step in steps if step <= most] or steps[:1]
    return next((step for step in possible if step >= amount), possible[-1])


def _build_service(cpu: Floats) -> ServiceSpec:
    """Build a service whose requests take a few milliseconds each, fewer for a small service, with an objective on their
    latency.
    """
    return ServiceSpec(cpu_seconds=float(np.clip(np.nanmean(cpu) / 20, 0.002, 0.05)), latency_objective=0.5)


def _make_unique_name(name: str, series: int, *, taken: Collection[str]) -> str:
    """Return a valid Kubernetes name that no other workload has."""
    kept = "".join(letter if letter.isalnum() else "-" for letter in name.lower()).strip("-")[:40].rstrip("-")
    is_numbered = kept.rsplit("-", 1)[-1].isdigit()
    if is_numbered and kept not in taken:
        return kept
    own = f"{kept or 'series'}-{series}"
    while own in taken:
        own = f"{own}-{series}"
    return own
