"""Stress pods on a cluster: made, waited for, looked at, and taken away again whatever happened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from trimtab.errors import TrimtabError
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.rest.client import Client, Object
from trimtab.kube.rest.resources import DEPLOYMENTS, PODS, SERVICES
from trimtab.lab.emulator.stress_pod import CONTAINER, LABEL, build_deployment, build_service

POLL_INTERVAL = 0.5


@dataclass(frozen=True, slots=True)
class StressPodStatus:
    """A stress pod as it is now."""

    pod: str
    node: str
    ready: bool
    size: Resources
    """The resources that its container has now."""
    restarts: int
    killed_at: str
    """The time of its last OOM kill; empty if there was none."""
    waiting: str
    """The reason why it does not run, in the kubelet's or the scheduler's words."""


class StressPods:
    """The pods of one run in one namespace."""

    def __init__(self, client: Client, *, namespace: str, run: str, image: str) -> None:
        self._client, self._namespace = client, namespace
        self._run, self._image = run, image

    @asynccontextmanager
    async def provision(self, sizes: dict[str, Resources]) -> AsyncIterator[None]:
        """Create Deployments and Services with these names, and delete them at the end, also after an interruption."""
        client, namespace = self._client, self._namespace
        try:
            for name, size in sizes.items():
                await client.create(SERVICES, build_service(name, run=self._run), namespace=namespace)
                body = build_deployment(name, size=size, image=self._image, run=self._run)
                await client.create(DEPLOYMENTS, body, namespace=namespace)
            yield
        finally:
            # Whoever interrupts again may; a first time must not leave anything behind.
            await asyncio.shield(self._delete_all(tuple(sizes)))

    async def wait_ready(self, names: Sequence[str], *, timeout: float) -> dict[str, StressPodStatus]:
        """Wait until each has its pod, and that answers; a refusal that says what it waits for."""
        seen: dict[str, StressPodStatus] = {}
        try:
            async with asyncio.timeout(timeout):
                while not (len(seen) == len(names) and all(each.ready for each in seen.values())):
                    await asyncio.sleep(POLL_INTERVAL)
                    seen = await self.list_status()
        except TimeoutError:
            slow = next((name for name in names if name not in seen or not seen[name].ready), names[0])
            why = seen[slow].waiting if slow in seen else "its Deployment has no pod"
            raise TrimtabError(
                f"stress pod {slow}: not ready after {timeout:g} s: {why or 'the pod does not answer'}; "
                f"see `kubectl describe pod -n {self._namespace} -l app={slow}`"
            ) from None
        return seen

    async def list_status(self) -> dict[str, StressPodStatus]:
        """Return the present pod of each Deployment."""
        found = await self._client.list_objects(
            PODS, namespace=self._namespace, labels=f"{LABEL}={self._run}"
        )
        return {
            pod["metadata"]["labels"]["app"]: _parse_status(pod)
            for pod in found
            if "deletionTimestamp" not in pod["metadata"]
        }

    async def _delete_all(self, names: Sequence[str]) -> None:
        for name in names:
            await self._client.delete(DEPLOYMENTS, name, namespace=self._namespace)
            await self._client.delete(SERVICES, name, namespace=self._namespace)
        while await self._client.list_objects(  # noqa: ASYNC110 - what is waited for happens on another machine
            PODS, namespace=self._namespace, labels=f"{LABEL}={self._run}"
        ):
            await asyncio.sleep(POLL_INTERVAL)


def _parse_status(pod: Object) -> StressPodStatus:
    status = pod.get("status", {})
    conditions = {each["type"]: each for each in status.get("conditions", [])}
    containers = [each for each in status.get("containerStatuses", []) if each["name"] == CONTAINER]
    state = containers[0] if containers else {}
    ends = [state.get(when, {}).get("terminated") or {} for when in ("state", "lastState")]
    killed = next((end for end in ends if end.get("reason") == "OOMKilled"), {})
    unplaced = conditions.get("PodScheduled", {}).get("message", "")
    waiting = state.get("state", {}).get("waiting", {})
    return StressPodStatus(
        pod=pod["metadata"]["name"],
        node=pod["spec"].get("nodeName", ""),
        ready=conditions.get("Ready", {}).get("status") == "True",
        size=_parse_resources(state.get("resources") or pod["spec"]["containers"][0]["resources"]),
        restarts=state.get("restartCount", 0),
        killed_at=killed.get("finishedAt") or "",
        waiting=unplaced or waiting.get("message") or waiting.get("reason") or "",
    )


def _parse_resources(resources: Object) -> Resources:
    return Resources.parse(resources.get("requests", {}), resources.get("limits", {}))
