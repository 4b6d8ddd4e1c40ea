"""A line to a PostgreSQL server that hangs up when nothing has come for too long.

A server that is frozen, or waits for its disk, still holds its end of the connection, and TCP sees nothing wrong: who
asks it would wait for ever, and with it all who wait for the store. To hang up ends that as any lost connection does,
also for who was cancelled meanwhile. It is here by itself since psycopg is an extra package.
"""

import asyncio
import os
import socket
from contextlib import suppress
from typing import Any, TypeVar

from psycopg import AsyncConnection
from psycopg.abc import PQGen

T = TypeVar("T")

STATEMENT_TIMEOUT = 60.0
"""Seconds for one statement: those that take longest are states of tens of megabytes, which take seconds."""


class TimeoutConnection(AsyncConnection[Any]):
    async def wait(self, gen: PQGen[T], *how: Any, **named: Any) -> T:
        alarm = asyncio.get_running_loop().call_later(STATEMENT_TIMEOUT, self._shut_down_socket)
        try:
            return await super().wait(gen, *how, **named)
        finally:
            alarm.cancel()

    def _shut_down_socket(self) -> None:
        # Of a copy: to shut it down is told to both, and libpq goes on to own its own.
        with suppress(OSError), socket.socket(fileno=os.dup(self.pgconn.socket)) as end:
            end.shutdown(socket.SHUT_RDWR)
