"""Run Robusta's KRR beside us on a fixed fleet, and keep what it recommended.

KRR is no package of ours: where its command is installed, `KRR` names it (`KRR="python /somewhere/krr.py" make recordings`).
The fleet is the same each time; only its end moves with the clock, by whole steps of KRR, which asks for the time up to now.
"""

import json
import os
import shlex
import subprocess
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.builders.objects import Object
from harness.cluster.cluster import Cluster

PROGRAM = "KRR"
NAMESPACE = "shop"
DAY, HOUR, MINUTE = 86400, 3600, 60
DAYS = 2
SCRAPE = 30
STATES = 240
"""The seconds between two samples of kube-state-metrics."""
GRID = 150
"""The seconds after which the scrapes and the steps of KRR (75 s) begin alike."""
SAFE = "bcdfghjklmnpqrstvwxz2456789"
MIB = 1 << 20

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Life:
    """One pod: its name, its owner, and when it ran, in seconds before the end of the fleet."""

    name: str
    owner: tuple[str, str]
    begin: int
    end: int
    """The seconds before the end; 0 for a pod that still runs."""


@dataclass(frozen=True)
class KrrWorkload:
    """A workload with its pods of the last days."""

    kind: str
    name: str
    containers: tuple[str, ...]
    replicas: int
    lives: tuple[Life, ...]
    hpa: str = ""
    """The resource that its autoscaler follows."""

    @property
    def owners(self) -> list[str]:
        """The ReplicaSets or Jobs between it and its pods, in order of time."""
        return list(dict.fromkeys(life.owner[1] for life in self.lives if life.owner[1] != self.name))


@dataclass(frozen=True)
class KrrFleet:
    """Workloads of all kinds with replicas, rollouts, autoscalers and short runs."""

    seed: int = 26
    _rng: np.random.Generator = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_rng", np.random.default_rng(self.seed))

    @cached_property
    def workloads(self) -> list[KrrWorkload]:
        return [
            *(self._deployment(f"single-{n}", replicas=1, rollouts=n % 4) for n in range(9)),
            *(self._deployment(f"several-{n}", replicas=2 + n % 4, rollouts=n % 5) for n in range(9)),
            *(
                self._deployment(f"young-{n}", replicas=1 + n % 2, age=(n + 1) * 35 * MINUTE)
                for n in range(6)
            ),
            *(self._deployment(f"scaled-cpu-{n}", replicas=2, hpa="cpu") for n in range(2)),
            *(self._deployment(f"scaled-memory-{n}", replicas=2, hpa="memory") for n in range(2)),
            *(self._numbered("StatefulSet", f"stateful-{n}", replicas=1 + n % 3) for n in range(5)),
            *(self._numbered("DaemonSet", f"daemon-{n}", replicas=3) for n in range(3)),
            *(
                self._cronjob(f"cron-{n}", every=HOUR * (1 + 2 * n), lasts=(15 + 10 * n) * MINUTE)
                for n in range(6)
            ),
            *(self._job(f"job-{n}", age=(3 + 5 * n) * HOUR) for n in range(3)),
        ]

    def samples(self, workload: KrrWorkload, life: Life, container: str) -> tuple[Floats, Floats, Floats]:
        """Return the times before the end (negative seconds), the CPU counter and the working set of a container."""
        rng = np.random.default_rng(abs(hash_of(workload.name, life.name, container)))
        same = np.random.default_rng(abs(hash_of(workload.name, container)))
        base, wave, noise = same.uniform(0.01, 1.2), same.uniform(0, 0.7), same.uniform(0.05, 1.1)
        held = same.uniform(30, 1500) * MIB
        busy = rng.uniform(0.6, 1.5)
        # A scrape that falls on a step to the millisecond would be in two of them by rounding.
        times = np.arange(-life.begin, -life.end, SCRAPE) + rng.integers(1, SCRAPE * 1000) / 1000
        daily = 1 + wave * np.sin(times / DAY * 2 * np.pi)
        cpu = base * busy * daily * rng.lognormal(0, noise, times.size)
        cpu[rng.random(times.size) < 0.01] *= 4
        cpu[times < -life.begin + 4 * MINUTE] *= 3
        grown = np.minimum(1, 0.6 + (times + life.begin) / HOUR)
        memory = held * busy**0.3 * grown * (1 + 0.1 * wave * np.sin(times / DAY * 2 * np.pi))
        memory *= rng.uniform(0.97, 1.03, times.size)
        return times, np.cumsum(cpu) * SCRAPE, memory.round()

    def write_openmetrics(self, file: Path, *, end: float) -> None:
        """Write the samples of the kubelet and of kube-state-metrics."""
        with file.open("w") as text:
            for metric, which in (
                ("container_cpu_usage_seconds", 1),
                ("container_memory_working_set_bytes", 2),
            ):
                name = f"{metric}_total" if which == 1 else metric
                text.write(f"# TYPE {metric} {'counter' if which == 1 else 'gauge'}\n")
                for workload in self.workloads:
                    for life in workload.lives:
                        for container in workload.containers:
                            found = self.samples(workload, life, container)
                            labels = f'job="kubelet",namespace="{NAMESPACE}",pod="{life.name}",container="{container}"'
                            text.writelines(
                                f"{name}{{{labels}}} {value!r} {end + at:.3f}\n"
                                for at, value in zip(found[0].tolist(), found[which].tolist(), strict=True)
                            )
            for metric, series in self._states():
                text.write(f"# TYPE {metric} gauge\n")
                for labels, begin, until in series:
                    text.writelines(
                        f'{metric}{{namespace="{NAMESPACE}",{labels}}} 1 {end + at:.3f}\n'
                        for at in range(-begin, -until + STATES, STATES)
                    )
            text.write("# EOF\n")

    def _states(self) -> Iterator[tuple[str, list[tuple[str, int, int]]]]:
        pairs = [(workload, life) for workload in self.workloads for life in workload.lives]
        for metric, label, kind in (
            ("kube_replicaset_owner", "replicaset", "Deployment"),
            ("kube_job_owner", "job_name", "CronJob"),
        ):
            yield (
                metric,
                [
                    (f'{label}="{owner}",owner_kind="{kind}",owner_name="{workload.name}"', DAYS * DAY, 0)
                    for workload in self.workloads
                    if workload.kind == kind
                    for owner in workload.owners
                ],
            )
        yield (
            "kube_pod_owner",
            [
                (
                    f'pod="{life.name}",owner_kind="{life.owner[0]}",owner_name="{life.owner[1]}"',
                    life.begin,
                    life.end,
                )
                for _, life in pairs
            ],
        )
        yield (
            "kube_pod_status_phase",
            [(f'pod="{life.name}",phase="Running"', life.begin, life.end) for _, life in pairs],
        )

    def objects(self) -> Iterator[tuple[str, Object]]:
        """Yield the path and the body of each object to create, owners before what they own."""
        for workload in self.workloads:
            yield from _workload_objects(workload)

    def _suffix(self, length: int) -> str:
        return "".join(self._rng.choice(list(SAFE), length))

    def _containers(self) -> tuple[str, ...]:
        return ("main", "proxy") if self._rng.random() < 0.4 else ("main",)

    def _deployment(
        self, name: str, *, replicas: int, rollouts: int = 0, age: int = DAYS * DAY, hpa: str = ""
    ) -> KrrWorkload:
        cuts = sorted((int(self._rng.integers(HOUR, age - HOUR)) for _ in range(rollouts)), reverse=True)
        lives = []
        for begin, end in zip([age, *cuts], [*cuts, 0], strict=True):
            owner = f"{name}-{self._suffix(9)}"
            lives += [
                Life(f"{owner}-{self._suffix(5)}", ("ReplicaSet", owner), begin, end) for _ in range(replicas)
            ]
        return KrrWorkload("Deployment", name, self._containers(), replicas, tuple(lives), hpa)

    def _numbered(self, kind: str, name: str, *, replicas: int) -> KrrWorkload:
        suffixes = [str(n) if kind == "StatefulSet" else self._suffix(5) for n in range(replicas)]
        lives = [Life(f"{name}-{suffix}", (kind, name), DAYS * DAY, 0) for suffix in suffixes]
        return KrrWorkload(kind, name, self._containers(), replicas, tuple(lives))

    def _cronjob(self, name: str, *, every: int, lasts: int) -> KrrWorkload:
        lives = []
        for number, begin in enumerate(range(DAYS * DAY, lasts, -every)):
            job = f"{name}-{29000000 + number * every // MINUTE}"
            length = int(lasts * self._rng.uniform(0.6, 1.0))
            lives.append(Life(f"{job}-{self._suffix(5)}", ("Job", job), begin, begin - length))
        return KrrWorkload("CronJob", name, self._containers(), 1, tuple(lives))

    def _job(self, name: str, *, age: int) -> KrrWorkload:
        lives = (Life(f"{name}-{self._suffix(5)}", ("Job", name), age, 0),)
        return KrrWorkload("Job", name, self._containers(), 1, lives)


def hash_of(*names: str) -> int:
    """Return the same number for the same names in each process."""
    return zlib.crc32("/".join(names).encode())


def _pod_spec(workload: KrrWorkload) -> Object:
    requests = {"cpu": "500m", "memory": "512Mi"}
    return {
        "restartPolicy": "Never" if workload.kind in {"Job", "CronJob"} else "Always",
        "automountServiceAccountToken": False,
        "containers": [
            {"name": name, "image": "registry.example.com/app:1", "resources": {"requests": requests}}
            for name in workload.containers
        ],
    }


def _workload_objects(workload: KrrWorkload) -> Iterator[tuple[str, Object]]:
    name, labels = workload.name, {"app": workload.name}
    template = {"metadata": {"labels": labels}, "spec": _pod_spec(workload)}
    selector = {"matchLabels": labels}
    meta = {"name": name, "namespace": NAMESPACE, "labels": labels}
    apps, batch = (f"/apis/{group}/v1/namespaces/{NAMESPACE}" for group in ("apps", "batch"))
    spec: Object
    match workload.kind:
        case "CronJob":
            spec = {"schedule": "7 * * * *", "jobTemplate": {"spec": {"template": template}}}
            yield (
                f"{batch}/cronjobs",
                {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": meta, "spec": spec},
            )
            return
        case "Job":
            yield (
                f"{batch}/jobs",
                {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": template}},
            )
        case kind:
            spec = {"selector": selector, "template": template}
            spec |= {"serviceName": name} if kind == "StatefulSet" else {}
            spec |= {} if kind == "DaemonSet" else {"replicas": workload.replicas}
            yield (
                f"{apps}/{kind.lower()}s",
                {"apiVersion": "apps/v1", "kind": kind, "metadata": meta, "spec": spec},
            )
    if workload.kind == "Deployment":
        owner = workload.owners[-1]
        body = {"replicas": workload.replicas, "selector": selector, "template": template}
        made = {**meta, "name": owner, "ownerReferences": [_owner("Deployment", name)]}
        yield (
            f"{apps}/replicasets",
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": made, "spec": body},
        )
    for life in workload.lives:
        if not life.end:
            made = {**meta, "name": life.name, "ownerReferences": [_owner(*life.owner)]}
            yield (
                f"/api/v1/namespaces/{NAMESPACE}/pods",
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": made,
                    "spec": {**_pod_spec(workload), "nodeName": "node-1"},
                },
            )
    if workload.hpa:
        metric = {"name": workload.hpa, "target": {"type": "Utilization", "averageUtilization": 70}}
        spec = {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": workload.kind, "name": name},
            "minReplicas": workload.replicas,
            "maxReplicas": 10,
            "metrics": [{"type": "Resource", "resource": metric}],
        }
        yield (
            f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers",
            {
                "apiVersion": "autoscaling/v2",
                "kind": "HorizontalPodAutoscaler",
                "metadata": meta,
                "spec": spec,
            },
        )


def _owner(kind: str, name: str) -> Object:
    group = "batch/v1" if kind == "Job" else "apps/v1"
    return {"apiVersion": group, "kind": kind, "name": name, "uid": "", "controller": True}


def populate(cluster: Cluster, fleet: KrrFleet) -> None:
    """Create the objects of the fleet in a cluster whose controllers are stopped."""
    cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    cluster.call("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": "default"}})
    uids: dict[tuple[str, str], str] = {}
    for path, body in fleet.objects():
        for owner in body["metadata"].get("ownerReferences", ()):
            owner["uid"] = uids[owner["kind"], owner["name"]]
        created = cluster.call("POST", path, body)
        uids[body["kind"], body["metadata"]["name"]] = created["metadata"]["uid"]
        if body["kind"] == "Pod":
            status = {"phase": "Running", "startTime": created["metadata"]["creationTimestamp"]}
            cluster.call("PUT", f"{path}/{body['metadata']['name']}/status", created | {"status": status})
        if body["kind"] == "DaemonSet":
            known = dict.fromkeys(("desiredNumberScheduled", "currentNumberScheduled", "numberReady"), 3)
            status = {**known, "numberMisscheduled": 0}
            cluster.call("PUT", f"{path}/{body['metadata']['name']}/status", created | {"status": status})


def find_program() -> list[str]:
    """Return the command line of KRR; empty if there is none here."""
    return shlex.split(os.environ.get(PROGRAM, ""))


def ask(
    program: list[str], *, kubeconfig: Path, prometheus: str, options: Sequence[str] = ()
) -> dict[str, dict[str, Any]]:
    """Return the request that `krr simple` recommends for each container; None where it gives none."""
    where = ["--kubeconfig", str(kubeconfig), "-p", prometheus, "-f", "json", "-q"]
    done = subprocess.run([*program, "simple", *where, *options], check=True, capture_output=True, text=True)
    found = json.loads(done.stdout[done.stdout.index("{") :])["scans"]
    return {
        f"{scan['object']['kind']} {scan['object']['name']} {scan['object']['container']}": {
            resource: _number(value["value"]) for resource, value in scan["recommended"]["requests"].items()
        }
        for scan in found
    }


def _number(value: float | str | None) -> float | None:
    return None if value is None or isinstance(value, str) else value
