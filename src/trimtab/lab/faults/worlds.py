"""Small clusters drawn from a seed: workloads, their demand, policies and the operator's configuration.

A world is plain data, as a fault plan is: a failing one is shrunk by removing parts of it, and stored as JSON. Demand
changes as drawn until `calm_at`; after that it is stationary, so that every run can be expected to converge.
"""

from __future__ import annotations

import math
import random
from typing import Any

import msgspec
import numpy as np

from trimtab.api.optimizationpolicy import OptimizationPolicySpec, PolicyMode
from trimtab.api.quantity import GIB, MIB
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.lab.faults.companions import Companions, draw_companions, draw_intent_settings
from trimtab.lab.simulator.scenario import (
    SCALABLE_KINDS,
    ContainerSpec,
    NodePool,
    RunSchedule,
    Scenario,
    ServiceSpec,
    WorkloadKind,
    WorkloadSpec,
)
from trimtab.operator.config.model import OperatorConfig
from trimtab.usage.trace import Floats, Trace

HOUR = 3600.0
DAY = 24 * HOUR

CURRENT_KUBERNETES = "1.35"
STARTS = {
    "monday": 1767571200.0,
    "spring-forward": 1774656000.0,
    "fall-back": 1792800000.0,
    "leap-day": 1835308800.0,
    "new-year": 1798675200.0,
}
"""The beginnings of runs: an ordinary Monday, and midnights one day before clocks and calendars do something unusual."""


class ContainerDraw(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A container with its demand; CPU in cores and millicores, memory in bytes."""

    name: str
    cpu: float
    memory: float
    shape: str = "flat"
    """The course of the demand: flat, daily, shift, steps, leak, bursts, idle."""
    resources: Resources = Resources()
    restart_on_memory_resize: bool = False
    noise_seed: int = 0


class WorkloadDraw(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A workload of a drawn world."""

    name: str
    namespace: str = "default"
    kind: WorkloadKind = "Deployment"
    replicas: int = 1
    containers: tuple[ContainerDraw, ...]
    labels: dict[str, str] = {}
    on_delete: bool = False
    startup_seconds: float = 10.0
    max_unavailable: int | None = None
    is_service: bool = False
    recreates: bool = False
    """A Deployment that ends all pods of a template before it creates those of the next."""
    schedule: RunSchedule | None = None
    """The runs of a CronJob or Job."""

    @property
    def key(self) -> WorkloadKey:
        return WorkloadKey(self.kind, self.namespace, self.name)


class WorldSpec(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A cluster, its operator and the length of the run."""

    seed: int
    start: float
    days: float
    calm_at: float
    """The seconds after the start from which on the demand is stationary."""
    step: float = 300.0
    nodes: int = 2
    node_cpu: float = 4.0
    node_memory: float = 16.0 * GIB
    noise: float = 0.05
    workloads: tuple[WorkloadDraw, ...]
    policies: dict[str, dict[str, Any]] = {}
    """The spec of each policy, as in a manifest, by name."""
    companions: Companions = Companions()
    """The Intents and autoscalers of the workloads."""
    config: dict[str, Any] = {}
    """The operator's configuration, as in its file."""
    replicas: int = 1
    """The processes of the operator, of which one leads."""
    workers: int = 1
    """The workloads that a process reconciles at the same time."""
    kubernetes: str = CURRENT_KUBERNETES
    """The version of Kubernetes: before 1.34 no memory limit is lowered in place, and before 1.33 nothing is resized."""

    def build_policies(self) -> dict[str, OptimizationPolicySpec]:
        return {
            name: OptimizationPolicySpec.model_validate(document) for name, document in self.policies.items()
        }

    def build_config(self) -> OperatorConfig:
        return OperatorConfig.model_validate(self.config)

    def build_scenario(self) -> Scenario:
        """Build the simulated cluster with its demand."""
        steps = math.ceil(self.days * DAY / self.step) + 1
        cpu: list[Floats] = []
        memory: list[Floats] = []
        workloads = []
        for workload in self.workloads:
            containers = []
            for each in workload.containers:
                containers.append(
                    ContainerSpec(
                        name=each.name,
                        demand_series=len(cpu),
                        resources=each.resources,
                        restart_on_memory_resize=each.restart_on_memory_resize,
                    )
                )
                own_cpu, own_memory = self._build_demand(each, steps)
                cpu.append(own_cpu)
                memory.append(own_memory)
            workloads.append(
                WorkloadSpec(
                    name=workload.name,
                    namespace=workload.namespace,
                    kind=workload.kind,
                    replicas=workload.replicas,
                    containers=tuple(containers),
                    labels=workload.labels,
                    update="OnDelete"
                    if workload.on_delete
                    else "Recreate"
                    if workload.recreates
                    else "RollingUpdate",
                    startup_seconds=workload.startup_seconds,
                    max_unavailable=workload.max_unavailable,
                    service=ServiceSpec() if workload.is_service else None,
                    schedule=workload.schedule,
                )
            )
        demand = Trace(
            names=tuple(f"s{series}" for series in range(len(cpu))),
            start=self.start,
            step=self.step,
            cpu=np.stack(cpu, axis=1),
            memory=np.stack(memory, axis=1),
        )
        pool = NodePool(count=self.nodes, cpu=self.node_cpu, memory=self.node_memory)
        return Scenario(pools=(pool,), workloads=tuple(workloads), demand=demand, noise=self.noise)

    def _build_demand(self, container: ContainerDraw, steps: int) -> tuple[Floats, Floats]:
        rng = np.random.default_rng(container.noise_seed)
        times = np.arange(steps) * self.step
        cpu_factor: Floats = np.ones(steps)
        memory_factor: Floats = np.ones(steps)
        match container.shape:
            case "daily":
                cpu_factor += 0.6 * np.sin(2 * np.pi * times / DAY + rng.uniform(0, 2 * np.pi))
                memory_factor += 0.2 * (cpu_factor - 1.0)
            case "shift":
                later = times >= rng.uniform(0.2, 1.0) * self.calm_at
                cpu_factor[later] = rng.choice([0.3, 2.5])
                memory_factor[later] = rng.choice([0.5, 1.8])
            case "steps":
                # Another level every few hours, now and then more memory than the limit.
                length = rng.uniform(2, 8) * HOUR
                levels = rng.uniform(0.5, 1.7, math.ceil(times[-1] / length) + 1)
                cpu_factor = levels[(times // length).astype(np.int64)]
                memory_factor = 0.4 + 0.6 * cpu_factor
            case "leak":
                period = rng.uniform(4, 16) * HOUR
                memory_factor += (times % period) / period
            case "bursts":
                bursting = rng.random(steps) < 0.03
                cpu_factor[bursting] = rng.uniform(1.5, 5.0)
                memory_factor[bursting] = rng.uniform(1.1, 1.6)
            case "idle":
                cpu_factor, memory_factor = np.full(steps, 0.001), np.full(steps, 1.0)
        calm = int(self.calm_at // self.step)
        if calm < steps:
            # The level of the last hours: what came before must be enough for what comes after.
            cpu_factor[calm:] = cpu_factor[max(calm - 12, 0) : calm].max(initial=0.0) or cpu_factor[calm]
            memory_factor[calm:] = (
                memory_factor[max(calm - 12, 0) : calm].max(initial=0.0) or memory_factor[calm]
            )
        return container.cpu * cpu_factor, container.memory * memory_factor


def draw_managed(rng: random.Random, world: WorldSpec) -> WorkloadKey:
    """Draw a workload, mostly one whose policy lets the operator change it: the others show little."""
    keys = [each.key for each in world.workloads]
    managed = [key for key in keys if _is_managed(world, key)]
    return rng.choice(managed if managed and rng.random() < 0.9 else keys)


def _is_managed(world: WorldSpec, key: WorkloadKey) -> bool:
    """Return whether the heaviest policy of a workload has mode Auto."""
    namespace = key.namespace

    def selects(policy: dict[str, Any]) -> bool:
        namespaces = policy.get("selector", {}).get("namespaces", {})
        return namespace in namespaces.get("allow", [namespace]) and namespace not in namespaces.get(
            "deny", []
        )

    found = [policy for _, policy in sorted(world.policies.items()) if selects(policy)]
    # The policies of `trimtab simulate` may leave out what has a default.
    specs = [OptimizationPolicySpec.model_validate(policy) for policy in found]
    return bool(specs) and max(specs, key=lambda spec: spec.weight).mode is PolicyMode.AUTO


def draw_world(seed: int) -> WorldSpec:
    """Draw a world; the same seed gives the same world."""
    rng = random.Random(f"world/{seed}")  # noqa: S311 - not for secrets
    days = rng.choice([2.0, 2.0, 3.0])
    namespaces = ["default", "shop"]
    # With a generator of its own: the kinds of workloads change nothing about the rest of a world.
    kinds = random.Random(f"kinds/{seed}")  # noqa: S311 - not for secrets
    workloads = tuple(
        _draw_kind(kinds, _draw_workload(rng, number, rng.choice(namespaces)))
        for number in range(rng.choice([1, 1, 2, 2, 3, 4]))
    )
    requested = sum(
        (each.resources.cpu_request or 0) / 1000 * workload.replicas
        for workload in workloads
        for each in workload.containers
    )
    memory = sum(
        (each.resources.memory_limit or each.resources.memory_request or each.memory * 2) * workload.replicas
        for workload in workloads
        for each in workload.containers
    )
    node_cpu = rng.choice([4.0, 8.0])
    nodes = max(2, math.ceil(max(requested * 1.4 / node_cpu, memory * 1.5 / (16 * GIB))))
    workloads = tuple(
        msgspec.structs.replace(each, replicas=nodes) if each.kind == "DaemonSet" else each
        for each in workloads
    )
    policies = {
        f"policy-{number}": draw_policy(rng, namespaces) for number in range(rng.choice([1, 1, 1, 2]))
    }
    # With a generator of its own: objects beside workloads change nothing about the rest of a world.
    beside = random.Random(f"companions/{seed}")  # noqa: S311 - not for secrets
    services = [each.key for each in workloads if each.is_service]
    return WorldSpec(
        seed=seed,
        start=rng.choice([STARTS["monday"], *STARTS.values()]),
        days=days,
        calm_at=round((days - 1.2) * DAY),
        step=rng.choice([300.0, 300.0, 60.0]) if len(workloads) == 1 else 300.0,
        nodes=nodes,
        node_cpu=node_cpu,
        noise=rng.choice([0.0, 0.05, 0.15]),
        workloads=workloads,
        policies=policies,
        companions=draw_companions(
            beside, [each.key for each in workloads if each.kind in SCALABLE_KINDS], services
        ),
        config={**draw_config(rng), "intents": draw_intent_settings(beside)},
        replicas=rng.choice([1, 1, 1, 2]),
        workers=rng.choice([1, 2, 8]),
        kubernetes=kinds.choices([CURRENT_KUBERNETES, "1.33", "1.32"], [80, 12, 8])[0],
    )


def _draw_workload(rng: random.Random, number: int, namespace: str) -> WorkloadDraw:
    kind: WorkloadKind = rng.choice(["Deployment", "Deployment", "StatefulSet"])
    replicas = rng.choice([1, 1, 2, 3, 4, 6])
    return WorkloadDraw(
        name=rng.choice(["web", "db", "queue", "cache"]) + f"-{number}",
        namespace=namespace,
        kind=kind,
        replicas=replicas,
        containers=tuple(_draw_container(rng, place) for place in range(rng.choice([1, 1, 1, 2, 3]))),
        labels={"tier": rng.choice(["front", "back"])},
        on_delete=rng.random() < 0.1,
        startup_seconds=rng.choice([0.0, 5.0, 10.0, 60.0, 400.0]),
        max_unavailable=rng.choice([None, None, None, 1, 0]),
        is_service=rng.random() < 0.45,
    )


def _draw_kind(rng: random.Random, workload: WorkloadDraw) -> WorkloadDraw:
    """Make some workloads DaemonSets, CronJobs or Jobs; services stay what they are."""
    kind: WorkloadKind = rng.choices(["DaemonSet", "CronJob", "Job", workload.kind], [10, 10, 5, 75])[0]
    every = rng.choice([1.0, 2.0, 4.0]) * HOUR
    share = rng.choice([0.3, 0.6, 0.9])
    if workload.is_service:
        return workload
    match kind:
        case "CronJob":
            schedule = RunSchedule(lasts=share * every, every=every)
        case "Job":
            schedule = RunSchedule(lasts=share * 30 * HOUR)
        case "Deployment":
            return msgspec.structs.replace(workload, recreates=rng.random() < 0.15)
        case _:
            return msgspec.structs.replace(workload, kind=kind)
    return msgspec.structs.replace(
        workload, kind=kind, replicas=min(workload.replicas, 2), on_delete=False, schedule=schedule
    )


def _draw_container(rng: random.Random, place: int) -> ContainerDraw:
    cpu = round(10 ** rng.uniform(-2.3, 0.0), 4)
    memory = float(round(10 ** rng.uniform(1.3, 3.0)) * MIB)
    return ContainerDraw(
        name=("main", "proxy", "logs")[place],
        cpu=cpu,
        memory=memory,
        shape=rng.choice(["flat", "daily", "shift", "shift", "steps", "steps", "leak", "bursts", "idle"]),
        resources=_draw_resources(rng, cpu, memory),
        restart_on_memory_resize=rng.random() < 0.1,
        noise_seed=rng.randrange(1 << 30),
    )


def _draw_resources(rng: random.Random, cpu: float, memory: float) -> Resources:
    """Draw requests and limits as people write them: too much, too little, equal, or none at all."""
    cpu_request = max(1, round(cpu * 1000 * rng.choice([0.5, 1.2, 2.0, 4.0, 10.0])))
    memory_request = max(16 * MIB, int(memory * rng.choice([0.7, 1.2, 2.0, 4.0])) // MIB * MIB)
    match rng.choice(["burstable", "burstable", "requests", "guaranteed", "memory-limit", "besteffort"]):
        case "guaranteed":
            memory_request = max(memory_request, int(memory * 1.3) // MIB * MIB)
            return Resources(cpu_request, cpu_request, memory_request, memory_request)
        case "requests":
            return Resources(cpu_request, None, memory_request, None)
        case "memory-limit":
            limit = max(memory_request, int(memory * 1.3) // MIB * MIB)
            return Resources(cpu_request, None, memory_request, limit)
        case "besteffort":
            return Resources()
        case _:
            limit = max(memory_request, int(memory * rng.choice([1.05, 1.5, 3.0])) // MIB * MIB)
            return Resources(cpu_request, max(cpu_request * rng.choice([1, 2, 4]), 50), memory_request, limit)


def _draw_update_strategy(rng: random.Random) -> dict[str, Any]:
    strategy: dict[str, Any] = {
        "allowRecreate": rng.random() < 0.4,
        "updateRequestsOnly": rng.random() < 0.5,
        "minInterval": rng.choice(["0s", "0s", "10m", "1h"]),
        "canary": {
            "percent": rng.choice([10, 30, 100]),
            "observation": rng.choice(["1m", "10m"]),
            "evidenceTimeout": rng.choice(["5m", "30m"]),
        },
    }
    if rng.random() < 0.15:
        strategy["allowInPlaceResize"] = False
    if strategy["allowRecreate"] and rng.random() < 0.3:
        strategy["template"] = "Always"
    elif rng.random() < 0.2:
        strategy["template"] = "Never"
    if rng.random() < 0.25:
        strategy["windows"] = [
            {
                "start": rng.choice(["00:00", "01:30", "22:00"]),
                "end": rng.choice(["06:00", "03:30", "23:30"]),
                "timeZone": rng.choice(["UTC", "Europe/Berlin", "America/New_York"]),
            }
        ]
    if rng.random() < 0.15:
        strategy["startupBoost"] = {"factor": 2, "duration": "5m"}
    rare = {"takeOwnership": True, "keepQosClass": False, "allowRecreateOnOOM": True}
    return strategy | {name: value for name, value in rare.items() if rng.random() < 0.12}


def draw_policy(rng: random.Random, namespaces: list[str]) -> dict[str, Any]:
    """Draw the spec of a policy, as in a manifest."""
    strategy = _draw_update_strategy(rng)
    policy: dict[str, Any] = {
        "mode": rng.choice(["Auto", "Auto", "Auto", "Auto", "Recommend", "Disabled"]),
        "weight": rng.choice([100, 100, 200]),
        "metricsConfig": {"minimumHistory": rng.choice(["1h", "3h"])},
        "changes": {"stabilization": rng.choice(["0s", "1h", "4h"]), "minimum": rng.choice([0.0, 0.1, 0.2])},
        "updateStrategy": strategy,
        "reconciliationInterval": rng.choice(["5m", "30m"]),
        "strategy": {"name": rng.choice(["trimtab", "trimtab", "trimtab", "vpa", "percentile", "peak"])},
    }
    if rng.random() < 0.3:
        policy["resourceBounds"] = {
            "cpu": {"min": rng.choice(["10m", "100m"]), "max": rng.choice(["500m", "2"])},
            "memory": {"min": "64Mi", "max": rng.choice(["256Mi", "2Gi"])},
        }
    if rng.random() < 0.3:
        policy["goal"] = rng.choice(["Savings", "Reliability"])
    if rng.random() < 0.15:
        controlled = rng.choice([[], ["cpu"], ["memory"]])
        policy["containers"] = [
            {"name": rng.choice(["main", "proxy", "*"]), "controlledResources": controlled}
        ]
    if rng.random() < 0.2:
        policy["selector"] = {"namespaces": {rng.choice(["allow", "deny"]): [rng.choice(namespaces)]}}
    if not strategy["updateRequestsOnly"] and rng.random() < 0.5:
        policy["limitPolicy"] = {
            "memory": rng.choice(
                [
                    {"mode": "Keep"},
                    {"mode": "KeepRatio"},
                    {"mode": "Multiplier", "multiplier": 1.5},
                    {"mode": "Remove"},
                ]
            )
        }
    return policy


def draw_config(rng: random.Random) -> dict[str, Any]:
    """Draw the operator's configuration, as in its file, without that of Intents."""
    config: dict[str, Any] = {}
    if rng.random() < 0.3:
        config["guardrails"] = [{"name": "errors", "query": 'errors{namespace="$namespace"}'}]
    if rng.random() < 0.1:
        config["maintenanceWindows"] = [{"start": "20:00", "end": "08:00"}]
    if rng.random() < 0.15:
        config["limits"] = {"maxCpu": "2", "maxMemory": "1Gi"}
    if rng.random() < 0.2:
        config["disruptionLimits"] = {"node": {"maxConcurrent": 1, "maxPerMinute": 2}}
    if rng.random() < 0.05:
        config["dryRun"] = True
    if rng.random() < 0.6:
        config["webhook"] = {"pods": True}
    return config
