"""Whether the process is alive, ready for work, and what it has counted: three paths of one small server.

`/healthz` says whether a restart would help, `/readyz` whether it can do its work now; both name what fails and why,
as the API server's own do. A check is asked when somebody asks, and is quick: it looks at what is known. Anybody
who can reach the port may read them, so nothing that is secret is in them.
"""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from trimtab.operator.metrics import Metrics

Check = Callable[[], str]
"""Why it is not well; empty when it is."""


class HealthChecks:
    """What there is to check; rooms add theirs when they start."""

    def __init__(self) -> None:
        self.liveness: dict[str, Check] = {}
        self.readiness: dict[str, Check] = {}

    def build_application(self, metrics: Metrics) -> web.Application:
        async def exposed(_: web.Request) -> web.Response:
            return web.Response(body=metrics.render(), headers={"Content-Type": CONTENT_TYPE_LATEST})

        async def healthz(_: web.Request) -> web.Response:
            return _respond(self.liveness)

        async def readyz(_: web.Request) -> web.Response:
            return _respond(self.liveness | self.readiness)

        application = web.Application()
        application.add_routes(
            [web.get("/metrics", exposed), web.get("/healthz", healthz), web.get("/readyz", readyz)]
        )
        return application


def _respond(checks: dict[str, Check]) -> web.Response:
    found = {name: check() for name, check in checks.items()}
    lines = [f"[-] {name}: {why}" if why else f"[+] {name}" for name, why in found.items()]
    failed = any(found.values())
    text = "\n".join([*lines, "not ok" if failed else "ok"]) + "\n"
    return web.Response(status=503 if failed else 200, text=text)
