"""What breaks together is told in one line: an API server that goes away takes every informer's connection with it."""

from __future__ import annotations

import asyncio

import structlog

from trimtab.kube.errors import KubeError, describe

log = structlog.get_logger(__name__)


class FailureAggregator:
    """Gathers what informers tell of, for a moment, and says it."""

    def __init__(self, delay: float = 1.0) -> None:
        self._delay = delay
        self._pending: dict[str, dict[str, str]] = {}

    def report(self, resource: str, error: KubeError) -> None:
        if not self._pending:
            asyncio.get_running_loop().call_later(self._delay, self._log_failures)
        # A refusal is of one resource, and its words name it; what passes by itself is of the server.
        cause = type(error).__name__ if error.transient else describe(error)
        self._pending.setdefault(cause, {})[resource] = describe(error)

    def _log_failures(self) -> None:
        found, self._pending = self._pending, {}
        for errors in found.values():
            log.warning("informer.broke", resources=", ".join(errors), error=next(iter(errors.values())))
