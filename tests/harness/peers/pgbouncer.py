"""Run PgBouncer before a PostgreSQL server: it lends a connection for one transaction.

What a client leaves on a connection (a prepared statement, a setting, a lock of its session) is found by another client,
and not by itself.
"""

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import make_url

from harness import packages
from harness.process import Process, free_port

CONNECTIONS = 3
"""The number of its connections to the server."""


@contextmanager
def pgbouncer(server: str) -> Iterator[str]:
    """Run it before a server; the URL by which the same database is reached through it."""
    url, port = make_url(server), free_port()
    folder = Path(tempfile.mkdtemp(prefix="trimtab-pgbouncer-"))
    (folder / "users").write_text(f'"{url.username}" "{url.password}"\n')
    (folder / "pgbouncer.ini").write_text(
        f"""\
[databases]
* = host={url.host} port={url.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {folder / "users"}
pool_mode = transaction
default_pool_size = {CONNECTIONS}
"""
    )
    user = "postgres" if os.geteuid() == 0 else None  # it refuses to run as root
    if user:
        for path in (folder, *folder.iterdir()):
            shutil.chown(path, user)
    program = Path("/") / packages.PROOF["pgbouncer"]
    pooler = Process("pgbouncer", [program, folder / "pgbouncer.ini"], log=folder / "log", user=user)
    try:
        pooler.start()
        pooler.wait_until(lambda: _listens(port))
        yield url.set(port=port).render_as_string(hide_password=False)
    finally:
        pooler.stop()
        shutil.rmtree(folder)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
