"""Keep the current configuration: reload the file when it changes, and keep the last valid one if it is invalid.

A mounted ConfigMap changes by a swap of a symbolic link two folders up; an editor replaces the file or writes into it.
In every case the bytes at the path change, so the reloader compares them: a few kilobytes every few seconds, without
depending on file-system notifications.

A field marked with REQUIRES_RESTART keeps its value, and the log says that it needs a restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Never

import structlog

from trimtab.errors import TrimtabError
from trimtab.operator.config.loader import ConfigurationError, load_configuration
from trimtab.operator.config.model import OperatorConfig, restart_fields
from trimtab.operator.metrics import Metrics

log = structlog.get_logger(__name__)

ConfigListener = Callable[[OperatorConfig], None]

_POLL_INTERVAL = 2.0


class ConfigReloader:
    """The current configuration, as `current`; `run` it as a task to follow the file.

    The constructor reads the file, and raises ConfigurationError if it is invalid, because there is no earlier one.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        environment: Mapping[str, str],
        flags: Sequence[str] = (),
        metrics: Metrics | None = None,
    ) -> None:
        self._path = path
        self._environment = environment
        self._flags = flags
        self.metrics = metrics or Metrics()
        """The metrics that the reloader counts in, shared with the operator that it configures."""
        self._listeners: list[ConfigListener] = []
        self._loaded_content = b"" if path is None else _read_required(path)
        self._last_content = self._loaded_content
        self.current = self._parse(self._loaded_content)
        self.problem = ""
        """The problem of the present file, while an earlier version stays in effect; empty if there is none."""

    def subscribe(self, listener: ConfigListener) -> None:
        """Call this with every configuration that takes effect from now on."""
        self._listeners.append(listener)

    async def run(self, *, interval: float = _POLL_INTERVAL) -> Never:
        """Follow the file until cancelled. A file that is still being written is read once it stops changing."""
        while True:
            await asyncio.sleep(interval)
            if self._is_stable():
                self.reload()

    def _is_stable(self) -> bool:
        """Return True if the content is the same as in the last poll: editors write in several steps."""
        was, self._last_content = self._last_content, _read_or_empty(self._path)
        return self._last_content == was

    def reload(self) -> None:
        """Apply the file's content if it is new and valid."""
        if self._path is None:
            return
        try:
            content = _read_required(self._path)
            if content == self._loaded_content and not self.problem:
                return
            if self._is_blank(content) and not self._is_blank(self._loaded_content):
                # Shell redirection, an editor or a full disk can leave an empty file. Applying all defaults would end a dry
                # run and drop the excluded namespaces.
                raise ConfigurationError(
                    f"{self._path}: the file is empty; write {{}} if you want all defaults"
                )
            stated = self._parse(content)
        except TrimtabError as error:
            self._reject(str(error))
            return
        self._loaded_content = content
        self._apply(stated)

    def _parse(self, content: bytes) -> OperatorConfig:
        origin = str(self._path or "")
        try:
            text = content.decode()
        except UnicodeDecodeError as error:
            raise ConfigurationError(f"{origin}: this is not UTF-8 text, at byte {error.start}") from None
        return load_configuration(text=text, origin=origin, environment=self._environment, flags=self._flags)

    @staticmethod
    def _is_blank(content: bytes) -> bool:
        """Return True if there are only blank lines, comments and document separators."""
        lines = (line.partition(b"#")[0].strip() for line in content.replace(b"\0", b"").splitlines())
        return not any(line and line not in {b"---", b"..."} for line in lines)

    def _reject(self, reason: str) -> None:
        if reason != self.problem:
            self.problem = reason
            self.metrics.config_reloads.labels("rejected").inc()
            log.error(
                "config.rejected",
                error=reason,
                fix="Fix the file; the last valid configuration stays in effect",
            )

    def _apply(self, stated: OperatorConfig) -> None:
        self.problem = ""
        was = self.current
        waiting = [name for name in restart_fields() if getattr(stated, name) != getattr(was, name)]
        if waiting:
            spelt = [OperatorConfig.model_fields[name].alias or name for name in waiting]
            log.warning("config.restart_required", fields=spelt)
        self.current = stated.model_copy(update={name: getattr(was, name) for name in waiting})
        self.metrics.config_reloads.labels("applied").inc()
        log.info("config.applied", path=str(self._path))
        if self.current != was:
            for listener in self._listeners:
                listener(self.current)


def _read_or_empty(path: Path | None) -> bytes:
    """Return the bytes at a path; none if it cannot be read, which `reload` reports."""
    try:
        return path.read_bytes() if path else b""
    except OSError:
        return b""


def _read_required(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}; check --config") from None
