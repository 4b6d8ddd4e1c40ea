"""An API server without objects, which serves and permits what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager

from aiohttp import web

from trimtab.http_server import serve_application
from trimtab.kube.auth.connection import Connection
from trimtab.kube.auth.credentials import LocalCredentialProvider
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.resources import Resource
from trimtab.kube.rest.retry import RetryPolicy


@asynccontextmanager
async def serve_stub(
    *,
    version: str = "v1.34.1",
    resources: Collection[Resource] = (),
    core_names: Iterable[str] = (),
    errors: Mapping[Resource, int] | None = None,
) -> AsyncIterator[tuple[Client, list[web.Request]]]:
    """Serve these resources, some of which are answered with an HTTP error; yield a client and the requests so far."""
    failing = {each.path(): code for each, code in (errors or {}).items()}
    requests: list[web.Request] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        requests.append(request)
        if request.path == "/version":
            return web.json_response({"gitVersion": version})
        if request.path == "/api/v1":
            return web.json_response({"resources": [{"name": name} for name in core_names]})
        if request.path in {"/api", "/apis"}:
            core = [each for each in resources if bool(each.group) == (request.path == "/apis")]
            return web.json_response({"kind": "APIGroupDiscoveryList", "items": list(map(_discover, core))})
        if code := failing.get(request.path):
            why = f"GET {request.path} is answered with {code}"
            return web.json_response({"kind": "Status", "message": why, "code": code}, status=code)
        if "sendInitialEvents" in request.query:
            return web.json_response({"kind": "Status", "code": 422}, status=422)
        if "watch" in request.query:
            await asyncio.sleep(3600)
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with (
        serve_application(app, "127.0.0.1:0", cancel_on_disconnect=True, grace_seconds=0) as port,
        Client(
            Connection(f"http://127.0.0.1:{port}", "stub", "default", LocalCredentialProvider(), None),
            retry=RetryPolicy(attempts=1),
        ) as client,
    ):
        yield client, requests


def _discover(resource: Resource) -> dict[str, object]:
    entry = {
        "resource": resource.plural,
        "responseKind": {"kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
    }
    return {
        "metadata": {"name": resource.group},
        "versions": [{"version": resource.version, "resources": [entry]}],
    }
