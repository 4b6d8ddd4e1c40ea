"""What tests use of an API server, real or fake."""

from pathlib import Path
from typing import Any, Protocol

from harness.cluster.credentials import Credentials


class ApiServer(Protocol):
    """An API server of which the test is the administrator."""

    directory: Path
    credentials: Credentials

    @property
    def server(self) -> str: ...

    @property
    def kubeconfig(self) -> Path: ...

    @property
    def ca(self) -> Path: ...

    @property
    def token(self) -> str: ...

    @property
    def client_cert(self) -> Path: ...

    @property
    def client_key(self) -> Path: ...

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask as the administrator; what is refused is an OSError."""
        ...

    def has(self, path: str) -> bool:
        """Return whether the server is up and knows this path."""
        ...

    def learn(self) -> None:
        """Serve our kinds."""
        ...

    def start_apiserver(self) -> None: ...

    def kill_apiserver(self) -> None:
        """End the server at once, as a crash would: connections are reset."""
        ...
