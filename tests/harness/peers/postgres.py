"""Run a PostgreSQL server from Debian's package while the tests run.

It lives in a temporary folder, listens on loopback only, and never syncs to disk: it must survive a killed
client, not a power cut.
"""

import os
import secrets
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from harness import packages
from harness.process import Process, free_port

USER = "trimtab"


def _binaries() -> Path:
    """The newest that is installed: Debian keeps one folder a major version."""
    packages.install("postgresql")
    found = Path("/usr/lib/postgresql").glob("*/bin")
    return max(found, key=lambda folder: int(folder.parent.name))


class Postgres:
    """A running server; `url` is what SQLAlchemy takes, of an empty database that its user owns."""

    def __init__(self) -> None:
        self._binaries = _binaries()
        self._folder = Path(tempfile.mkdtemp(prefix="trimtab-postgres-"))
        # PostgreSQL refuses to run as root. Its package makes a user for it.
        self._user = "postgres" if os.geteuid() == 0 else None
        self._password = secrets.token_urlsafe()
        self._port = free_port()
        self._server = Process(
            "postgres",
            [
                self._binaries / "postgres",
                *("-D", self._folder / "data", "-k", self._folder, "-p", str(self._port)),
                *("-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "full_page_writes=off"),
            ],
            log=self._folder / "log",
            user=self._user,
        )

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://{USER}:{self._password}@127.0.0.1:{self._port}/{USER}"

    def start(self) -> None:
        secret = self._folder / "password"
        secret.write_text(self._password)
        if self._user:
            shutil.chown(self._folder, self._user)
            shutil.chown(secret, self._user)
        self._run("initdb", "-D", self._folder / "data", "-U", USER, "--pwfile", secret, *self._how)
        self._server.start()
        self._server.wait_until(self._ready)
        self._run("createdb", *self._address, USER)

    def stop(self) -> None:
        self._server.stop()
        shutil.rmtree(self._folder)

    @property
    def _how(self) -> tuple[str, ...]:
        return ("--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C", "--no-sync")

    @property
    def _address(self) -> tuple[str, ...]:
        return ("-h", "127.0.0.1", "-p", str(self._port), "-U", USER)

    def _ready(self) -> bool:
        asked = subprocess.run(
            [self._binaries / "pg_isready", *self._address], stdout=subprocess.DEVNULL, check=False
        )
        return asked.returncode == 0

    def _run(self, program: str, *arguments: str | Path) -> None:
        subprocess.run(
            [self._binaries / program, *arguments],
            user=self._user,
            cwd=self._folder,
            env={"PGPASSWORD": self._password, "PATH": os.environ["PATH"]},
            stdout=subprocess.DEVNULL,
            check=True,
        )

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
