"""Sources of the bytes of a token, a certificate, a key or a CA bundle.

The bytes are part of the kubeconfig or in a file, and a file may be replaced at any time: the kubelet renews a pod's
token every hour, and tools renew client certificates. So a file is checked each time it is needed and read again if
it changed. Rotation is rarely atomic, so the last good content stays in use until valid content replaces it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import structlog

from trimtab.kube.errors import ConfigError

log = structlog.get_logger(__name__)

In = TypeVar("In")
Out = TypeVar("Out")


class LastGoodValue(Generic[In, Out]):
    """The last good result of `build`, which is called again when its inputs change.

    A failure is raised only if there is no earlier result; otherwise it is logged once.
    """

    def __init__(self, build: Callable[[In], Out]) -> None:
        self._build = build
        self._inputs: list[In] = []
        self._result: list[Out] = []

    def get(self, inputs: In) -> Out:
        """Return the result for these inputs, or the last good result if `build` rejects them."""
        if self._inputs != [inputs]:
            try:
                self._result = [self._build(inputs)]
            except ConfigError as error:
                if not self._result:
                    raise
                log.warning("credentials.reload_failed", error=str(error), fallback="the last valid content")
            self._inputs = [inputs]
        return self._result[0]

    def invalidate(self) -> None:
        """Call `build` at the next `get`, even for the same inputs."""
        self._inputs = []


class CredentialSource(Protocol):
    """Bytes of a credential, with the place they come from for error messages."""

    @property
    def where(self) -> str: ...

    def read(self) -> bytes:
        """Return the current bytes; raise ConfigError if none could ever be read."""

    def invalidate(self) -> None:
        """Reload at the next read, because the server rejected these bytes."""


@dataclass(frozen=True)
class InlineCredentialSource:
    """Bytes that are part of the configuration itself."""

    where: str
    content: bytes = field(repr=False)

    def read(self) -> bytes:
        return self.content

    def invalidate(self) -> None:
        """Do nothing: inline bytes never change."""


class FileCredentialSource:
    """Bytes in a file, read again whenever the file changes."""

    def __init__(self, path: Path, *, where: str) -> None:
        self.where = f"{where} ({path})"
        self._path = path
        self._latest: LastGoodValue[object, bytes] = LastGoodValue(lambda _: self._load())

    def read(self) -> bytes:
        return self._latest.get(self._fingerprint())

    def invalidate(self) -> None:
        self._latest.invalidate()

    def _fingerprint(self) -> object:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_ino, status.st_ctime_ns, status.st_size

    def _load(self) -> bytes:
        try:
            content = self._path.read_bytes()
        except OSError as error:
            raise ConfigError(f"{self.where}: cannot be read: {error.strerror}") from error
        if not content.strip():
            raise ConfigError(f"{self.where}: the file is empty")
        return content
