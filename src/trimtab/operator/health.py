"""Serve the process's liveness, readiness and metrics on one small HTTP server.

`/healthz` fails if a restart would help, `/readyz` if the process cannot work now; both name each failed check and its
reason, as the API server's own do. Checks run on request and must be quick. The endpoints need no authentication, so
they contain no secrets.
"""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from trimtab.operator.metrics import Metrics

Check = Callable[[], str]
"""A check; it returns the reason why it fails, or an empty string."""


class HealthChecks:
    """The liveness and readiness checks; parts of the operator add theirs when they start."""

    def __init__(self) -> None:
        self.liveness: dict[str, Check] = {}
        self.readiness: dict[str, Check] = {}

    def build_application(self, metrics: Metrics) -> web.Application:
        """Return the application that serves the checks and the metrics."""

        async def serve_metrics(_: web.Request) -> web.Response:
            return web.Response(body=metrics.render(), headers={"Content-Type": CONTENT_TYPE_LATEST})

        async def healthz(_: web.Request) -> web.Response:
            return _respond(self.liveness)

        async def readyz(_: web.Request) -> web.Response:
            return _respond(self.liveness | self.readiness)

        application = web.Application()
        application.add_routes(
            [web.get("/metrics", serve_metrics), web.get("/healthz", healthz), web.get("/readyz", readyz)]
        )
        return application


def _respond(checks: dict[str, Check]) -> web.Response:
    found = {name: check() for name, check in checks.items()}
    lines = [f"[-] {name}: {why}" if why else f"[+] {name}" for name, why in found.items()]
    failed = any(found.values())
    text = "\n".join([*lines, "not ok" if failed else "ok"]) + "\n"
    return web.Response(status=503 if failed else 200, text=text)
