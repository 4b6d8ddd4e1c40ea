"""Where the bytes of a token, a certificate, a key or an authority come from.

They stand in the kubeconfig itself or in a file, and a file may be replaced under us: the kubelet renews a
pod's token every hour, and tools renew client certificates. So a file is looked at each time it is needed and
read again when it changed. Rotation is seldom atomic, hence the one rule here: what worked stays in use
until something that works replaces it.
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
    """The last good result of `build`, made anew when what it is made from changed.

    A failure is raised only when there is nothing to fall back on; else it is logged, once.
    """

    def __init__(self, build: Callable[[In], Out]) -> None:
        self._build = build
        self._inputs: list[In] = []
        self._result: list[Out] = []

    def get(self, inputs: In) -> Out:
        """What `build` makes of these inputs, or made of the last that it could use."""
        if self._inputs != [inputs]:
            try:
                self._result = [self._build(inputs)]
            except ConfigError as error:
                if not self._result:
                    raise
                log.warning(
                    "credentials changed but cannot be used: keeping the last that could", error=str(error)
                )
            self._inputs = [inputs]
        return self._result[0]

    def invalidate(self) -> None:
        """Build again next time, even from the same inputs."""
        self._inputs = []


class CredentialSource(Protocol):
    """Bytes that authenticate somebody, and where they stand for the messages about them."""

    @property
    def where(self) -> str: ...

    def read(self) -> bytes:
        """The bytes as they are now; ConfigError when there never were any."""

    def invalidate(self) -> None:
        """Look again at the next read: the server refused what these bytes said."""


@dataclass(frozen=True)
class InlineCredentialSource:
    """Bytes that stand in the configuration itself."""

    where: str
    content: bytes = field(repr=False)

    def read(self) -> bytes:
        return self.content

    def invalidate(self) -> None:
        """Nothing to look at again."""


class FileCredentialSource:
    """Bytes in a file, read again whenever the file changed."""

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
