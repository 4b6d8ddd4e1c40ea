"""Ways to a stress pod: through the API server, which every kubeconfig can, or straight to its Service within a cluster."""

from __future__ import annotations

import asyncio

import aiohttp

from trimtab.kube.errors import KubeError
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.resources import SERVICES
from trimtab.lab.emulator.load_profile import PodDemand
from trimtab.lab.emulator.stress_pod import PORT, USAGE_PATH

REQUEST_TIMEOUT = 10.0


def _build_params(demand: PodDemand) -> dict[str, str]:
    return {"milli": str(demand.milli), "mib": str(demand.mib)}


class ApiServerTransport:
    """Needs the right to get services/proxy in the namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace

    async def __call__(self, service: str, demand: PodDemand) -> bool:
        path = SERVICES.path(namespace=self._namespace, name=f"{service}:{PORT}")
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT):
                await self._client.request(
                    "GET",
                    f"{path}/proxy/{USAGE_PATH}",
                    params=_build_params(demand),
                    accept="*/*",
                    read=bytes,
                )
        except (KubeError, TimeoutError):
            return False
        return True


class DirectTransport:
    """Goes by the name of the Service, or by an address with a port."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def __call__(self, service: str, demand: PodDemand) -> bool:
        host = service if ":" in service else f"{service}:{PORT}"
        try:
            async with (
                asyncio.timeout(REQUEST_TIMEOUT),
                self._session.get(f"http://{host}/{USAGE_PATH}", params=_build_params(demand)) as answer,
            ):
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False
