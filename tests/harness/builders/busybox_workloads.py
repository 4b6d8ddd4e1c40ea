"""Build manifests of busybox workloads that burn, idle or grow on the real node."""

from typing import Any

from harness.cluster.images import BUSYBOX

Manifest = dict[str, Any]


def plods(rounds: int = 300, *, rest: float = 0.03) -> str:
    """A script that works a little, evenly: a few hundredths of a core, more with more rounds, and less with more rest."""
    return f"while :; do i=0; while [ $i -lt {rounds} ]; do i=$((i+1)); done; usleep {rest * 1e6:.0f}; done"


def burns(share: float) -> str:
    """A script that keeps a core busy for this share of the time."""
    on = int(share * 500_000)
    spin = f"(while :; do :; done) & usleep {on}; kill -9 $!; wait $!; usleep {500_000 - on}"
    return f"while :; do {spin}; done 2>/dev/null"


def grows(*, first: int, most: int, every: float) -> str:
    """A script that holds a number of MiB, and takes one more every so many seconds until it has the most."""
    take = 'held[i] = sprintf("%1048576s", "")'
    wait = f'if (i > {first}) system("sleep {every}")'
    return (
        f"exec awk 'BEGIN {{ for (; i < {most}; i++) {{ {take}; {wait} }} while (1) system(\"sleep 1\") }}'"
    )


def template(script: str, *, app: str, size: Manifest, restart: str = "Always", **container: Any) -> Manifest:
    """A pod of one container that runs a script; it has no need to be asked twice to end."""
    return {
        "metadata": {"labels": {"app": app}},
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": BUSYBOX,
                    "imagePullPolicy": "Never",
                    "args": ["-c", script],
                    "resources": size,
                    **container,
                }
            ],
            "restartPolicy": restart,
            "terminationGracePeriodSeconds": 0,
        },
    }


def size(cpu: str, memory: str, *, cpu_limit: str | None = None, memory_limit: str | None = None) -> Manifest:
    """Requests, and limits where they are given."""
    limits = {name: amount for name, amount in (("cpu", cpu_limit), ("memory", memory_limit)) if amount}
    return {"requests": {"cpu": cpu, "memory": memory}, **({"limits": limits} if limits else {})}


def workload(kind: str, name: str, pod: Manifest, *, policy: str, replicas: int = 1) -> Manifest:
    """A workload of a kind of `apps`, with a label by which a policy selects it."""
    spec: Manifest = {"selector": {"matchLabels": pod["metadata"]["labels"]}, "template": pod}
    if kind != "DaemonSet":
        spec["replicas"] = replicas
    if kind == "StatefulSet":
        spec |= {"serviceName": name, "podManagementPolicy": "Parallel"}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": {"policy": policy}},
        "spec": spec,
    }


def cron_job(name: str, pod: Manifest, *, policy: str) -> Manifest:
    """A CronJob that never comes to its time; its runs are made by hand."""
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": name, "labels": {"policy": policy}},
        "spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": pod}}},
    }


def autoscaler(deployment: str, *, utilization: int, least: int, most: int) -> Manifest:
    """An HPA that holds the CPU of a Deployment to a share of its request, and is not stirred by a moment's noise."""
    target = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": utilization}}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": deployment},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment},
            "minReplicas": least,
            "maxReplicas": most,
            "metrics": [{"type": "Resource", "resource": target}],
            "behavior": {"scaleUp": {"stabilizationWindowSeconds": 120}},
        },
    }


def policy(
    name: str, *, strategy: Manifest, update: Manifest | None = None, observation: str = "5s", **spec: Any
) -> Manifest:
    """An Auto policy for the workloads labelled with its name, as hasty as one may be."""
    # What makes the manifests here owns them, as a GitOps tool would.
    hasty = {"minInterval": "0s", "canary": {"observation": observation}, "takeOwnership": True}
    return {
        "apiVersion": "trimtab.io/v1alpha1",
        "kind": "OptimizationPolicy",
        "metadata": {"name": name},
        "spec": {
            "mode": "Auto",
            "selector": {"workloadSelector": {"matchLabels": {"policy": name}}},
            "metricsConfig": {"minimumHistory": "1m"},
            "changes": {"cpu": {"decrease": 0.9}, "stabilization": "0s"},
            "reconciliationInterval": "10s",
            "strategy": strategy,
            "updateStrategy": {**hasty, **(update or {})},
            **spec,
        },
    }
