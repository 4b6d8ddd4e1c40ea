"""Annotations that a namespace user may write must not get round the limits of the organisation."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from harness.e2e.leader import Office, deployment, office
from trimtab.actuation.change_annotations import (
    AppliedSizes,
    ChangeAnnotations,
    OngoingChange,
    Phase,
    PodHealth,
    UpdateMethod,
    encode_change_annotations,
)
from trimtab.actuation.hold import HOLD_ANNOTATION
from trimtab.api.quantity import Quantity
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.resources import DEPLOYMENTS, PODS
from trimtab.store import Store

GIB = 1 << 30
LIMITS = {"maxCpu": "2", "maxMemory": "1Gi"}
OWN = Resources(1000, None, GIB // 2, GIB // 2)
GREEDY = Resources(64_000, None, 256 * GIB, 256 * GIB)
HOLD = {"who": "system:admin", "why": "approved", "sizes": {"web": {"cpu_request": 64_000}}}
SECONDS = 6


@pytest.fixture
def work(client: Client, kinds: None, namespace: str, tmp_path: Path) -> Office:
    return office(client, namespace, tmp_path)


async def _annotate(work: Office, annotations: dict[str, str]) -> None:
    body = {"metadata": {"name": "web", "namespace": work.namespace, "annotations": annotations}}
    await work.client.apply(DEPLOYMENTS, body, manager="tenant", force=True)


async def _largest_requests(work: Office, seconds: float = SECONDS) -> tuple[float, int]:
    """Watch the pods for a while and return the most CPU and memory that any of them requested."""
    cpu, memory = 0.0, 0
    async with asyncio.timeout(60):
        until = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < until:
            for pod in await work.client.list_objects(PODS, namespace=work.namespace):
                requests = pod["spec"]["containers"][0]["resources"]["requests"]
                cpu = max(cpu, Quantity.parse(requests["cpu"]).cores)
                memory = max(memory, Quantity.parse(requests["memory"]).bytes)
            await asyncio.sleep(0.1)
    return cpu, memory


def _forge(namespace_uid: str) -> dict[str, dict[str, str]]:
    """Return annotations that claim a larger size: one that is in effect, and one that is on its way to all pods."""
    applied = AppliedSizes(id="x", at=1, sizes={"web": GREEDY}, template={"web": OWN})
    change = OngoingChange(
        id="x",
        started=1,
        method=UpdateMethod.IN_PLACE,
        phase=Phase.PROMOTING,
        since=1,
        before={"web": OWN},
        after={"web": GREEDY},
        template={"web": OWN},
        health=PodHealth(pods=1),
    )
    return {
        "applied": encode_change_annotations(ChangeAnnotations(applied=applied), uid=namespace_uid),
        "change": encode_change_annotations(ChangeAnnotations(change=change), uid=namespace_uid),
    }


async def _create_web(work: Office) -> str:
    created = await work.client.create(DEPLOYMENTS, deployment(replicas=1), namespace=work.namespace)
    return str(created["metadata"]["uid"])


@pytest.mark.parametrize("forged", ["applied", "change"])
async def test_forged_size_in_an_annotation_is_bounded_by_the_limits(work: Office, forged: str) -> None:
    work.configure(limits=LIMITS)
    await work.write_policy(mode="Auto")
    uid = await _create_web(work)
    async with work.kubelet("web"):
        await _annotate(work, _forge(uid)[forged])
        async with work.leading():
            cpu, memory = await _largest_requests(work)
    assert cpu <= 2.0
    assert memory <= GIB


async def test_size_of_a_hold_is_bounded_by_the_limits_and_its_author_is_marked(work: Office) -> None:
    work.configure(limits=LIMITS)
    await work.write_policy(mode="Recommend")
    await _create_web(work)
    sizes = {"web": {"cpu_request": 64_000, "memory_request": 256 * GIB, "memory_limit": 256 * GIB}}
    async with work.kubelet("web"), work.leading():
        await _annotate(work, {HOLD_ANNOTATION: json.dumps(HOLD | {"sizes": sizes})})
        cpu, memory = await _largest_requests(work, 10)
    assert (cpu, memory) == (2.0, GIB)
    async with Store.open(work.folder / "trimtab.db") as store:
        found = await store.history.find(namespace=work.namespace)
    applied = [each for each in found if each.what == "applying"]
    assert applied
    assert {each.who for each in applied} == {"system:admin (unverified)"}


@pytest.mark.parametrize("mode", ["Recommend", "Auto"])
async def test_hold_changes_nothing_where_changes_are_forbidden(work: Office, mode: str) -> None:
    limits: dict[str, Any] = {"forbiddenModes": ["Auto"]}
    work.configure(limits=limits)
    await work.write_policy(mode=mode)
    await _create_web(work)
    async with work.kubelet("web"), work.leading():
        await _annotate(work, {HOLD_ANNOTATION: json.dumps(HOLD)})
        assert await _largest_requests(work) == (1.0, GIB // 2)
