"""A PostgreSQL connection that is closed when a statement gets no response for too long.

A server that hangs, or waits for its disk, keeps its end of the connection open, and TCP detects nothing: the query
would wait for ever, and with it all tasks that wait for the store. Shutting the socket down ends the query like any
lost connection, even if its task was cancelled meanwhile. The module is separate because psycopg is an optional
dependency.
"""

import asyncio
import os
import socket
from contextlib import suppress
from typing import Any, Self, TypeVar

from psycopg import AsyncConnection
from psycopg.abc import PQGen

from trimtab.store.passfile import read_password

T = TypeVar("T")

STATEMENT_TIMEOUT = 60.0
"""The maximum seconds of one statement; the slowest, for states of tens of megabytes, take seconds."""


class TimeoutConnection(AsyncConnection[Any]):
    @classmethod
    async def connect(cls, conninfo: str = "", **given: Any) -> Self:
        """Connect, with the password of the password file as it is now: a rotated one serves the next connection."""
        if "passfile" in given and "password" not in given and (password := read_password(given)) is not None:
            given["password"] = password
        return await super().connect(conninfo, **given)

    async def wait(self, gen: PQGen[T], *how: Any, **named: Any) -> T:
        alarm = asyncio.get_running_loop().call_later(STATEMENT_TIMEOUT, self._shut_down_socket)
        try:
            return await super().wait(gen, *how, **named)
        finally:
            alarm.cancel()

    def _shut_down_socket(self) -> None:
        # Shut down a duplicate: the shutdown affects both, and libpq keeps ownership of its own descriptor.
        with suppress(OSError), socket.socket(fileno=os.dup(self.pgconn.socket)) as end:
            end.shutdown(socket.SHUT_RDWR)
