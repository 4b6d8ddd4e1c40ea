"""The requests of a pod equal those of kube-scheduler's `PodRequests`."""

from __future__ import annotations

from typing import Any

import pytest

from harness.builders.records import project_object
from trimtab.kube.kinds.nodes import NodeResources
from trimtab.kube.kinds.pod_requests import pod_requests, template_requests
from trimtab.kube.kinds.pods import Pod, pod_projection
from trimtab.kube.kinds.workloads import workload_projection
from trimtab.kube.rest.resources import DAEMON_SETS

MIB = 1 << 20


def container(name: str, cpu: str = "", memory: str = "", **more: Any) -> dict[str, Any]:
    requests = {resource: amount for resource, amount in (("cpu", cpu), ("memory", memory)) if amount}
    return {"name": name, "resources": {"requests": requests}, **more}


def sidecar(name: str, cpu: str, memory: str = "") -> dict[str, Any]:
    return container(name, cpu, memory, restartPolicy="Always")


def pod(*containers: dict[str, Any], status: dict[str, Any] | None = None, **spec: Any) -> Pod:
    manifest = {
        "metadata": {"name": "web"},
        "spec": {"containers": containers, **spec},
        "status": status or {},
    }
    return project_object(pod_projection(), manifest)


WEB, LOG = container("web", "500m", "256Mi"), container("log", "100m", "64Mi")


@pytest.mark.parametrize(
    ("found", "capacity"),
    [
        pytest.param(pod(WEB, LOG), NodeResources(600, 320 * MIB), id="containers add up"),
        pytest.param(
            pod(WEB, LOG, resources={"requests": {"cpu": "2", "memory": "1Gi"}}),
            NodeResources(2000, 1024 * MIB),
            id="the pod's own requests count instead of its containers'",
        ),
        pytest.param(
            pod(WEB, LOG, resources={"requests": {"cpu": "2"}, "limits": {"memory": "1Gi"}}),
            NodeResources(2000, 320 * MIB),
            id="each resource on its own",
        ),
        pytest.param(
            pod(WEB, overhead={"cpu": "250m", "memory": "120Mi"}),
            NodeResources(750, 376 * MIB),
            id="overhead is added",
        ),
        pytest.param(
            pod(WEB, resources={"requests": {"cpu": "2"}}, overhead={"cpu": "250m", "memory": "120Mi"}),
            NodeResources(2250, 376 * MIB),
            id="to the pod's own requests too",
        ),
        pytest.param(
            pod(WEB, LOG, initContainers=[container("migrate", "2", "128Mi"), container("wait", "1")]),
            NodeResources(2000, 320 * MIB),
            id="the largest init container, where it is more",
        ),
        pytest.param(
            pod(
                WEB,
                initContainers=[
                    container("first", "900m"),
                    sidecar("mesh", "300m", "64Mi"),
                    container("second", "700m"),
                ],
            ),
            NodeResources(1000, 320 * MIB),
            id="a sidecar runs beside the init containers after it",
        ),
        pytest.param(
            pod(WEB, initContainers=[sidecar("mesh", "300m"), sidecar("audit", "200m")]),
            NodeResources(1000, 256 * MIB),
            id="sidecars add up with the containers",
        ),
        pytest.param(pod(), NodeResources(0, 0), id="nothing"),
    ],
)
def test_pod_requests_count_as_the_scheduler_does(found: Pod, capacity: NodeResources) -> None:
    assert pod_requests(found) == capacity


@pytest.mark.parametrize(
    ("applied", "reason", "millicores"),
    [("300m", "", 500), ("800m", "", 800), ("800m", "Deferred", 800), ("300m", "Infeasible", 300)],
)
def test_pod_requests_during_a_resize_are_the_larger_size(applied: str, reason: str, millicores: int) -> None:
    condition = {"type": "PodResizePending", "status": "True", "reason": reason}
    status = {
        "containerStatuses": [{"name": "web", "resources": {"requests": {"cpu": applied}}}],
        "conditions": [condition] if reason else [],
    }
    assert pod_requests(pod(WEB, status=status)).cpu == millicores


def template(**spec: Any) -> NodeResources:
    manifest = {"metadata": {"name": "agent"}, "spec": {"template": {"spec": spec}}}
    return template_requests(project_object(workload_projection(DAEMON_SETS), manifest))


def test_template_requests_are_those_of_its_pods() -> None:
    limited = {"name": "agent", "resources": {"limits": {"cpu": "1", "memory": "64Mi"}}}
    assert template(containers=[limited]) == NodeResources(1000, 64 * MIB)
    whole = {"requests": {"cpu": "2", "memory": "1Gi"}}
    assert template(containers=[limited], resources=whole) == NodeResources(2000, 1024 * MIB)
    assert template(containers=[limited], initContainers=[container("copy", "3")]) == NodeResources(
        3000, 64 * MIB
    )


def test_template_requests_default_to_pod_limits_without_container_requests() -> None:
    limits = {"limits": {"cpu": "2", "memory": "1Gi"}}
    assert template(containers=[{"name": "agent"}], resources=limits) == NodeResources(2000, 1024 * MIB)
    assert template(containers=[container("agent", "300m")], resources=limits) == NodeResources(
        300, 1024 * MIB
    )
