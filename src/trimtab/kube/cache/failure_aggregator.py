"""What breaks together is told in one line: an API server that goes away takes every informer's connection with it."""

from __future__ import annotations

import asyncio

import structlog

from trimtab.kube.errors import KubeError, describe

log = structlog.get_logger(__name__)


class Breaks:
    """Gathers what informers tell of, for a moment, and says it."""

    def __init__(self, gather: float = 1.0) -> None:
        self._gather = gather
        self._found: dict[str, dict[str, str]] = {}

    def tell(self, resource: str, error: KubeError) -> None:
        if not self._found:
            asyncio.get_running_loop().call_later(self._gather, self._say)
        # A refusal is of one resource, and its words name it; what passes by itself is of the server.
        cause = type(error).__name__ if error.transient else describe(error)
        self._found.setdefault(cause, {})[resource] = describe(error)

    def _say(self) -> None:
        found, self._found = self._found, {}
        for errors in found.values():
            log.warning("informer.broke", resources=", ".join(errors), error=next(iter(errors.values())))
