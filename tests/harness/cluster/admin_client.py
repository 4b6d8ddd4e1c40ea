"""Send an administrator's requests to the API server over kept connections, for checks that poll."""

import io
import json
import ssl
from contextlib import suppress
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit

PATIENCE = 30.0
REFUSALS = 400


class Administrator:
    """`ask` from any thread; what is refused is an HTTPError, and whatever else goes wrong on the way an OSError."""

    def __init__(self, server: str, *, ca: Path, token: str) -> None:
        self._server = server
        self._ca = ca
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._idle: list[HTTPSConnection] = []

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> bytes:
        content = None if body is None else json.dumps(body).encode()
        if kept := self._kept():
            # A server that was restarted, or is tired of waiting, has closed it.
            with suppress(ConnectionError, ssl.SSLError):
                return self._exchange(kept, method, path, content)
        return self._exchange(self._connection(), method, path, content)

    def close(self) -> None:
        while kept := self._kept():
            kept.close()

    def _kept(self) -> HTTPSConnection | None:
        with suppress(IndexError):
            return self._idle.pop()
        return None

    def _connection(self) -> HTTPSConnection:
        context = ssl.create_default_context(cafile=self._ca)
        return HTTPSConnection(urlsplit(self._server).netloc, context=context, timeout=PATIENCE)

    def _exchange(self, connection: HTTPSConnection, method: str, path: str, content: bytes | None) -> bytes:
        try:
            connection.request(method, path, content, self._headers)
            response = connection.getresponse()
            body = response.read()
        except BaseException as failure:
            connection.close()
            if isinstance(failure, HTTPException):
                raise ConnectionError(f"no answer from {self._server}{path}: {failure!r}") from failure
            raise
        self._idle.append(connection)  # it reconnects if the server was about to close it
        if response.status >= REFUSALS:
            raise HTTPError(
                self._server + path, response.status, response.reason, response.headers, io.BytesIO(body)
            )
        return body
