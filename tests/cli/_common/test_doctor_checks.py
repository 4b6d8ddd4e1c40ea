"""Checks of `trimtab doctor` for requests and for autoscalers of one workload."""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from harness.builders.records import project_object, workload
from trimtab.cli._common.doctor_checks import (
    _check_retention,
    _check_usage,
    check_autoscalers,
    check_requests,
    check_samples,
)
from trimtab.kube.kinds.hpas import HorizontalPodAutoscaler, hpa_projection
from trimtab.kube.kinds.vpas import VerticalPodAutoscaler, vpa_projection
from trimtab.kube.rest.client import Client
from trimtab.scan.source_selection import SelectedSource
from trimtab.testing import ScriptedSource, steady
from trimtab.usage.prometheus.source import Prometheus
from trimtab.usage.usage import PodContainer

TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
NAMED = {"name": "web", "namespace": "shop"}


def hpa(resource: str) -> HorizontalPodAutoscaler:
    metric = {"name": resource, "target": {"averageUtilization": 60}}
    spec = {"scaleTargetRef": TARGET, "metrics": [{"resource": metric}]}
    return project_object(hpa_projection(), {"metadata": NAMED, "spec": spec})


def vpa(mode: str, *resources: str) -> VerticalPodAutoscaler:
    policy = {"containerPolicies": [{"containerName": "*", "controlledResources": list(resources)}]}
    update = {"updateMode": mode}
    spec = {"targetRef": TARGET, "updatePolicy": update, "resourcePolicy": policy if resources else {}}
    return project_object(vpa_projection(), {"metadata": NAMED, "spec": spec})


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


@pytest.mark.parametrize(("age", "state"), [(86_400.0, "problem"), (60.0, "warning")])
async def test_samples_of_no_container_are_reported(age: float, state: str) -> None:
    """The source answers, but of another cluster, or by other labels."""
    now = 1_700_000_000.0
    web = PodContainer("shop", "web", "app")
    for source in (ScriptedSource(steady(0.1, 1e8)), ScriptedSource(lambda *_: (math.nan, math.nan), web)):
        found = await check_samples(source, {web: now - age}, ["shop"], now)
        assert (found.state, found.found) == (
            state,
            "no sample of the last 30 minutes for any of 1 running container",
        )
    assert (await check_samples(ScriptedSource(steady(0.1, 1e8)), {}, ["shop"], now)).state == "ok"


async def test_samples_are_checked_of_a_source_without_history(monkeypatch: pytest.MonkeyPatch) -> None:
    now, web = 1_700_000_000.0, PodContainer("shop", "web", "app")

    @asynccontextmanager
    async def opened(*_: object, **__: object) -> AsyncIterator[SelectedSource]:
        source = ScriptedSource(steady(0.1, 1e8), history=False)
        yield SelectedSource(source, "metrics-server", has_history=False)

    monkeypatch.setattr("trimtab.cli._common.doctor_checks.open_source", opened)
    found = await _check_usage(
        cast("Client", None), settings={}, days=8, namespaces=["shop"], running={web: now - 86_400}, now=now
    )
    assert [(each.check, each.state) for each in found] == [("usage", "ok"), ("samples", "problem")]
