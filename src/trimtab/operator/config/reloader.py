"""The configuration that holds now: read again whenever its file changed, and kept when the new one is no good.

A mounted ConfigMap changes by the swap of a symbolic link two folders up, and an editor replaces a file or writes
into it. What all of these have in common is that the bytes at the path become others, so the bytes are what is
compared: a few kilobytes every few seconds, and nothing that a file system must tell us of.

A field that is marked with RESTART keeps its value, and the log says that it waits for a restart.
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
    """What is configured at this moment, as `current`; `run` it as a task to have it follow its file.

    Making one reads the file, and raises ConfigurationError where there is nothing to fall back on.
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
        """Where it counts; the operator that it configures counts there, too."""
        self._listeners: list[ConfigListener] = []
        self._loaded_content = b"" if path is None else _read_required(path)
        self._last_content = self._loaded_content
        self.current = self._parse(self._loaded_content)
        self.problem = ""
        """What is wrong with the file as it is now, while an earlier one holds; empty when nothing is."""

    def subscribe(self, listener: ConfigListener) -> None:
        """Call this with every configuration that comes to hold from now on."""
        self._listeners.append(listener)

    async def run(self, *, interval: float = _POLL_INTERVAL) -> Never:
        """Follow the file until cancelled. What is being written is left until it has stopped changing."""
        while True:
            await asyncio.sleep(interval)
            if self._is_stable():
                self.reload()

    def _is_stable(self) -> bool:
        """Return whether the file has the same content as the last time: an editor writes in several steps."""
        was, self._last_content = self._last_content, _read_or_empty(self._path)
        return self._last_content == was

    def reload(self) -> None:
        """Take over what the file says, if that is new and any good."""
        if self._path is None:
            return
        try:
            content = _read_required(self._path)
            if content == self._loaded_content and not self.problem:
                return
            if self._is_blank(content) and not self._is_blank(self._loaded_content):
                # A shell's redirection, an editor or a full disk leaves an empty file behind, and all defaults would turn
                # a dry run off and forget the namespaces that must not be touched.
                raise ConfigurationError(f"{self._path}: is empty; write {{}} if all defaults are meant")
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
            raise ConfigurationError(f"{origin}: is no text in UTF-8, at byte {error.start}") from None
        return load_configuration(text=text, origin=origin, environment=self._environment, flags=self._flags)

    @staticmethod
    def _is_blank(content: bytes) -> bool:
        """Return whether there is nothing but blank lines, comments and document marks."""
        lines = (line.partition(b"#")[0].strip() for line in content.replace(b"\0", b"").splitlines())
        return not any(line and line not in {b"---", b"..."} for line in lines)

    def _reject(self, reason: str) -> None:
        if reason != self.problem:
            self.problem = reason
            self.metrics.config_reloads.labels("refused").inc()
            log.error("config.refused", error=reason, fix="mend it; until then the last good one holds")

    def _apply(self, stated: OperatorConfig) -> None:
        self.problem = ""
        was = self.current
        waiting = [name for name in restart_fields() if getattr(stated, name) != getattr(was, name)]
        if waiting:
            spelt = [OperatorConfig.model_fields[name].alias or name for name in waiting]
            log.warning("config.waits_for_restart", fields=spelt)
        self.current = stated.model_copy(update={name: getattr(was, name) for name in waiting})
        self.metrics.config_reloads.labels("adopted").inc()
        log.info("config.adopted", path=str(self._path))
        if self.current != was:
            for heard in self._listeners:
                heard(self.current)


def _read_or_empty(path: Path | None) -> bytes:
    """Return the bytes at a path; none where it cannot be read, which `look` reports."""
    try:
        return path.read_bytes() if path else b""
    except OSError:
        return b""


def _read_required(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}; check --config") from None
