"""Combine the failures of informers into one log line: an API server that goes away interrupts all of them at
once.
"""

from __future__ import annotations

import asyncio

import structlog

from trimtab.kube.errors import KubeError, describe

log = structlog.get_logger(__name__)


class FailureAggregator:
    """Collects the failures of informers for a moment, and logs them together."""

    def __init__(self, delay: float = 1.0) -> None:
        self._delay = delay
        self._pending: dict[str, dict[str, str]] = {}

    def report(self, resource: str, error: KubeError) -> None:
        if not self._pending:
            asyncio.get_running_loop().call_later(self._delay, self._log_failures)
        # The text of a permanent error names its resource, so group by text; a transient error concerns the server,
        # so group by class.
        cause = type(error).__name__ if error.transient else describe(error)
        self._pending.setdefault(cause, {})[resource] = describe(error)

    def _log_failures(self) -> None:
        found, self._pending = self._pending, {}
        for errors in found.values():
            log.warning("informer.failed", resources=", ".join(errors), error=next(iter(errors.values())))
