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


class Latest(Generic[In, Out]):
    """The last good result of `build`, made anew when what it is made from changed.

    A failure is raised only when there is nothing to fall back on; else it is logged, once.
    """

    def __init__(self, build: Callable[[In], Out]) -> None:
        self._build = build
        self._seen: list[In] = []
        self._good: list[Out] = []

    def of(self, inputs: In) -> Out:
        """What `build` makes of these inputs, or made of the last that it could use."""
        if self._seen != [inputs]:
            try:
                self._good = [self._build(inputs)]
            except ConfigError as error:
                if not self._good:
                    raise
                log.warning(
                    "credentials changed but cannot be used: keeping the last that could", error=str(error)
                )
            self._seen = [inputs]
        return self._good[0]

    def forget_inputs(self) -> None:
        """Build again next time, even from the same inputs."""
        self._seen = []


class Material(Protocol):
    """Bytes that authenticate somebody, and where they stand for the messages about them."""

    @property
    def where(self) -> str: ...

    def read(self) -> bytes:
        """The bytes as they are now; ConfigError when there never were any."""

    def forget(self) -> None:
        """Look again at the next read: the server refused what these bytes said."""


@dataclass(frozen=True)
class Written:
    """Bytes that stand in the configuration itself."""

    where: str
    content: bytes = field(repr=False)

    def read(self) -> bytes:
        return self.content

    def forget(self) -> None:
        """Nothing to look at again."""


class Kept:
    """Bytes in a file, read again whenever the file changed."""

    def __init__(self, path: Path, *, where: str) -> None:
        self.where = f"{where} ({path})"
        self._path = path
        self._latest: Latest[object, bytes] = Latest(lambda _: self._load())

    def read(self) -> bytes:
        return self._latest.of(self._stamp())

    def forget(self) -> None:
        self._latest.forget_inputs()

    def _stamp(self) -> object:
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
