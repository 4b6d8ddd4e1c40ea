"""Run a program in the background, keeps its log and end it with the test process.

It ends when it is stopped, and with the process that started it however that one ends. Should it outlive both
all the same, the next start of the harness finds it in the record and ends it.
"""

import json
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from harness.build import cache, tail

# To the kernel, the parent that a program must not outlive is the thread that started it. A test may call from a thread
# that ends with the test, so one thread, which lives as long as this process, starts them all.
_STARTER = ThreadPoolExecutor(1, thread_name_prefix="starter")


def free_port() -> int:
    """Return a free loopback port.

    It lies below the range from which the system serves outgoing connections, so that a server which is down for
    a while finds its port free when it comes back.
    """
    while True:
        port = random.randint(20_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def wait_for(condition: Callable[[], bool], *, what: str, timeout: float = 60) -> None:
    """Look until it is so: often at first, and then, for others need the machine too, at every thirtieth of the wait."""
    begun = time.monotonic()
    while not condition():
        waited = time.monotonic() - begun
        if waited > timeout:
            raise TimeoutError(f"waited {timeout:g} s for {what}")
        time.sleep(min(max(0.05, waited / 30), 0.5))


class Process:
    """`start`, `wait_until` it answers, `stop` or `kill`; `start` again."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        log: Path,
        user: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = log
        as_user = ["--reuid", user, "--regid", user, "--clear-groups"] if user else []
        # setpriv and the shell become the program itself: the process id stays. A parent that died before setpriv
        # was heard is not reported any more, hence the look at whose child this is.
        bound = ["setpriv", *as_user, "--pdeathsig", "KILL", "--"]
        orphan = ["sh", "-c", 'test "$PPID" = "$0" && exec "$@"', os.getpid()]
        self._command = [*map(str, (*bound, *orphan, *command))]
        self._environment = {**os.environ, **(environment or {})}
        self._popen: subprocess.Popen[bytes] | None = None

    @property
    def alive(self) -> bool:
        return self._popen is not None and self._popen.poll() is None

    @property
    def pid(self) -> int:
        assert self._popen is not None, f"{self.name} was not started"
        return self._popen.pid

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._popen = _STARTER.submit(
                subprocess.Popen,
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,  # Ctrl-C reaches the harness, which stops things in their order
            ).result()
        _record(self.name, self._popen.pid)

    def wait_until(self, ready: Callable[[], bool], *, timeout: float = 60) -> None:
        """Return once it is ready; a program that ends or is not ready in time raises an error with its log."""
        try:
            wait_for(lambda: not self.alive or ready(), what=self.name, timeout=timeout)
        except TimeoutError:
            self.kill()
            raise RuntimeError(
                f"{self.name} was not ready after {timeout:g} s\n{self._last_words()}"
            ) from None
        if not self.alive:
            raise RuntimeError(f"{self.name} ended at its start\n{self._last_words()}")

    def _last_words(self) -> str:
        return f"the end of {self.log}:\n{tail(self.log)}"

    def stop(self, *, timeout: float = 10) -> None:
        """Ask it to end; after the timeout, end it."""
        if self._popen is None:
            return
        self._popen.terminate()
        try:
            self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self.kill()

    def kill(self) -> None:
        """End it at once, as a crash would."""
        if self._popen is None:
            return
        self._popen.kill()
        self._popen.wait()
        _record_of(self._popen.pid).unlink(missing_ok=True)
        self._popen = None


def started_at(pid: int) -> str | None:
    """Return the start time of a process in ticks: with it a process id is unique."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return None


def _record_of(pid: int) -> Path:
    return cache() / "running" / f"{pid}.json"


def _record(name: str, pid: int) -> None:
    record = _record_of(pid)
    record.parent.mkdir(parents=True, exist_ok=True)
    entry = {
        "name": name,
        "started_at": started_at(pid),
        "owner": os.getpid(),
        "owner_started_at": started_at(os.getpid()),
    }
    record.write_text(json.dumps(entry))


def end_leftovers() -> list[str]:
    """End processes that a crashed run left behind and list them. Processes of a live run are kept."""
    ended = []
    for record in (cache() / "running").glob("*.json"):
        # Another run is at it too, or a version of this file with other names wrote it.
        with suppress(FileNotFoundError, ValueError, KeyError):
            entry = json.loads(record.read_text())
            if entry["owner_started_at"] == started_at(entry["owner"]):
                continue
            pid = int(record.stem)
            if entry["started_at"] == started_at(pid):
                os.kill(pid, signal.SIGKILL)
                ended.append(entry["name"])
            record.unlink()
    return ended
