"""Build Kubernetes objects of a realistic size.

A `pod` has two containers with environment, probes, mounts and tolerations, as a web service behind a mesh would;
with the managed fields and defaults that the API server adds, and its status, it comes to about 7 KB of JSON.
"""

import uuid
from typing import Any

Object = dict[str, Any]

STARTED = "2026-11-01T08:00:30Z"


def node(name: str, *, cpu: str = "32", memory: str = "128Gi", pods: int = 110) -> Object:
    capacity = {"cpu": cpu, "memory": memory, "pods": str(pods), "ephemeral-storage": "200Gi"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "node.kubernetes.io/instance-type": "m7i.8xlarge",
                "topology.kubernetes.io/zone": "eu-1a",
            },
        },
        "spec": {},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def owner_uid(app: str, namespace: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{app}.{namespace}"))


def pod(
    name: str,
    *,
    namespace: str = "default",
    node: str = "",
    app: str = "web",
    cpu: str = "250m",
    memory: str = "512Mi",
    owned: bool = True,
) -> Object:
    """A running pod; `pod_status` is its status.

    Where it is owned, by a replica set that does not exist: a controller manager would delete it as garbage.
    """
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": f"{app}-7c9f8d6b5",
        "uid": owner_uid(app, namespace),
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {
                "app.kubernetes.io/name": app,
                "app.kubernetes.io/instance": f"{app}-production",
                "app.kubernetes.io/version": "4.17.2",
                "pod-template-hash": "7c9f8d6b5",
                "team": "payments",
            },
            "annotations": {
                "prometheus.io/scrape": "true",
                "checksum/config": "8f2c4f5b0a6de1f1a8d0f9c8d3d0f7a6e5c4b3a29180706f5e4d3c2b1a098f7e",
            },
            "ownerReferences": [owner] if owned else [],
        },
        "spec": {
            **({"nodeName": node} if node else {}),
            "containers": [_web(app, cpu=cpu, memory=memory), _proxy()],
            "serviceAccountName": "default",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 45,
            "tolerations": [
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
                for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
            ],
            "volumes": [
                {"name": "config", "configMap": {"name": f"{app}-config", "optional": True}},
            ],
        },
    }


def _web(app: str, *, cpu: str, memory: str) -> Object:
    probe = {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 10, "timeoutSeconds": 2}
    variables = {"LOG_LEVEL": "info", "POOL_SIZE": "32"}
    return {
        "name": "web",
        "image": f"registry.example.com/payments/{app}@sha256:{'9c1a' * 16}",
        "ports": [{"name": "http", "containerPort": 8080}],
        "env": [{"name": name, "value": value} for name, value in variables.items()],
        "resources": {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory}},
        "readinessProbe": probe,
        "volumeMounts": [{"name": "config", "mountPath": "/etc/app"}],
    }


def _proxy() -> Object:
    return {
        "name": "proxy",
        "image": f"registry.example.com/mesh/proxy@sha256:{'4be2' * 16}",
        "args": ["--concurrency=2", "--log-level=warning", "--drain-time=30s", "--stats-port=15090"],
        "resources": {
            "requests": {"cpu": "50m", "memory": "64Mi"},
            "limits": {"cpu": "500m", "memory": "256Mi"},
        },
    }


def pod_status(pod: Object, *, ip: str = "10.4.17.23") -> Object:
    """Return the status that a kubelet reports once the pod runs."""
    conditions = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        "phase": "Running",
        "conditions": [
            {"type": name, "status": "True", "lastTransitionTime": STARTED, "lastProbeTime": None}
            for name in conditions
        ],
        "hostIP": "10.0.3.17",
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "startTime": "2026-11-01T08:00:00Z",
        "qosClass": "Burstable",
        "containerStatuses": [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": container["image"],
                "containerID": f"containerd://{'d41d8cd98f00b204' * 4}",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "lastState": {},
                "state": {"running": {"startedAt": STARTED}},
                "allocatedResources": container["resources"]["requests"],
                "resources": container["resources"],
            }
            for container in pod["spec"]["containers"]
        ],
    }


def rollout_kind(group: str) -> Object:
    """The definition of a kind that scales and is not built in, as those of Argo are."""
    open_schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {
            "openAPIV3Schema": {"type": "object", "properties": {"spec": open_schema, "status": open_schema}}
        },
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"rollouts.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "rollouts", "kind": "Rollout"},
            "versions": [version],
        },
    }
