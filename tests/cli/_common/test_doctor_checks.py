"""What the doctor says of requests and of autoscalers that act on the same workload."""

import math
from typing import Any, cast

import pytest

from harness.builders.records import folded, workload
from trimtab.cli._common.doctor_checks import (
    _check_retention,
    check_autoscalers,
    check_requests,
    check_samples,
)
from trimtab.kube.kinds.hpas import hpa_projection
from trimtab.kube.kinds.vpas import vpa_projection
from trimtab.testing import ScriptedSource
from trimtab.usage.prometheus.source import Prometheus
from trimtab.usage.usage import PodContainer

TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
NAMED = {"name": "web", "namespace": "shop"}


def hpa(resource: str) -> Any:
    metric = {"name": resource, "target": {"averageUtilization": 60}}
    spec = {"scaleTargetRef": TARGET, "metrics": [{"resource": metric}]}
    return folded(hpa_projection(), {"metadata": NAMED, "spec": spec})


def vpa(mode: str, *resources: str) -> Any:
    policy = {"containerPolicies": [{"containerName": "*", "controlledResources": list(resources)}]}
    update = {"updateMode": mode}
    spec = {"targetRef": TARGET, "updatePolicy": update, "resourcePolicy": policy if resources else {}}
    return folded(vpa_projection(), {"metadata": NAMED, "spec": spec})


@pytest.mark.parametrize(
    ("mode", "resources", "state", "said"),
    [
        ("Auto", (), "warning", "an HPA and a VPA both act on shop/deployment/web"),
        ("Auto", ("memory",), "warning", "VPAs change pods: shop/web"),
        ("Off", (), "ok", "no HPA and VPA act on the same workload"),
    ],
)
def test_doctor_reports_hpa_and_vpa_on_the_same_resource(
    mode: str, resources: tuple[str, ...], state: str, said: str
) -> None:
    found = check_autoscalers([hpa("cpu")], [vpa(mode, *resources)])
    assert (found.state, found.found) == (state, said)


def test_doctor_names_workloads_without_requests() -> None:
    asks = {"name": "a", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    found = check_requests(
        [workload("web", containers=(asks,)), workload("bare", containers=({"name": "a"},))]
    )
    assert found.found == "1 workload without CPU or memory requests: shop/deployment/bare"
    assert check_requests([workload("web", containers=(asks,))]).state == "ok"


async def test_doctor_checks_a_short_window_in_the_past() -> None:
    class Since:
        async def has_usage(self, *, at: float) -> bool:
            return at <= 1000.0

    found = await _check_retention(cast("Prometheus", Since()), 0.01, 1000.0)
    assert found is not None
    assert found.state == "ok"


async def test_doctor_names_running_containers_without_samples() -> None:
    now, day = 1_800_000_000.0, 86400.0
    web, silent, young, elsewhere = (
        PodContainer(space, name, "app")
        for space, name in (("shop", "web"), ("shop", "silent"), ("shop", "young"), ("else", "where"))
    )
    running = {web: now - day, silent: now - day, young: now - 60, elsewhere: now - day}
    source = ScriptedSource(lambda name, _: (0.1, 1e8) if name == web else (math.nan, math.nan), web, silent)
    found = await check_samples(source, running, ["shop"], now)
    assert found.state == "warning"
    assert found.found == "1 of 2 running containers without samples of the last 30 minutes: shop/silent app"
    del running[silent]
    found = await check_samples(source, running, ["shop"], now)
    assert (found.state, found.found) == ("ok", "1 running container with recent samples")
