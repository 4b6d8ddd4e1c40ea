"""Processes of the harness: they end with it, and a failed start has a reason."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from harness import process
from harness.process import Process, wait_for


@pytest.fixture(autouse=True)
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, and where in it the running processes are recorded."""
    monkeypatch.setenv("TEST_CACHE", str(tmp_path))
    return tmp_path / "running"


def test_process_stops(tmp_path: Path, records: Path) -> None:
    sleeper = Process("sleeper", ["sleep", "1000"], log=tmp_path / "log")
    sleeper.start()
    assert len(list(records.iterdir())) == 1
    sleeper.stop()
    assert not sleeper.alive
    assert list(records.iterdir()) == []


def test_process_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    deaf = Process("deaf", ["sh", "-c", "trap '' TERM; echo deaf; exec sleep 1000"], log=tmp_path / "log")
    deaf.start()
    deaf.wait_until(lambda: "deaf" in (tmp_path / "log").read_text())
    deaf.stop(timeout=0.1)
    assert not deaf.alive


def test_process_failure_shows_its_log(tmp_path: Path) -> None:
    broken = Process("broken", ["sh", "-c", "echo no such luck; exit 1"], log=tmp_path / "log")
    broken.start()
    with pytest.raises(RuntimeError, match=r"(?s)broken ended at its start.*no such luck"):
        broken.wait_until(lambda: False)


def test_process_that_is_never_ready_shows_its_log(tmp_path: Path) -> None:
    lost = Process("lost", ["sh", "-c", "echo still looking; exec sleep 1000"], log=tmp_path / "log")
    lost.start()
    wait_for(lambda: "looking" in (tmp_path / "log").read_text(), what="its words")
    with pytest.raises(RuntimeError, match=r"(?s)lost was not ready after 0.1 s.*still looking"):
        lost.wait_until(lambda: False, timeout=0.1)
    assert not lost.alive


def test_process_outlives_the_thread_that_starts_it(tmp_path: Path) -> None:
    sleeper = Process("sleeper", ["sh", "-c", "echo asleep; exec sleep 1000"], log=tmp_path / "log")

    def start() -> None:
        sleeper.start()
        sleeper.wait_until(lambda: "asleep" in (tmp_path / "log").read_text())

    starter = threading.Thread(target=start)
    starter.start()
    starter.join()
    time.sleep(0.3)  # the kernel ends it as soon as the thread is gone
    assert sleeper.alive
    sleeper.kill()


def test_process_ends_with_its_starter(tmp_path: Path, records: Path) -> None:
    start = f"""
from pathlib import Path; import signal
from harness.process import Process
Process("sleeper", ["sleep", "1000"], log=Path({str(tmp_path / "log")!r})).start()
print("started", flush=True); signal.pause()
"""
    with subprocess.Popen(
        [sys.executable, "-c", start],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(Path(process.__file__).parent.parent)},
    ) as starter:
        assert starter.stdout
        assert starter.stdout.readline() == b"started\n"
        (record,) = records.iterdir()
        pid = int(record.stem)
        started_at = process.started_at(pid)
        assert started_at
        starter.send_signal(signal.SIGKILL)
    wait_for(lambda: _has_ended(pid, started_at), what="the end of the sleeper")


def _has_ended(pid: int, started_at: str) -> bool:
    """Return whether the process ended, though perhaps not yet reaped."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z" or process.started_at(pid) != started_at


def test_process_cleanup_ends_only_leftovers_of_a_crashed_run(tmp_path: Path, records: Path) -> None:
    ours = Process("ours", ["sleep", "1000"], log=tmp_path / "log")
    ours.start()
    with subprocess.Popen(["sleep", "1000"]) as orphan, subprocess.Popen(["true"]) as crashed:
        crashed.wait()
        record = {
            "name": "orphan",
            "started_at": process.started_at(orphan.pid),
            "owner": crashed.pid,
            "owner_started_at": "1",
        }
        (records / f"{orphan.pid}.json").write_text(json.dumps(record))
        assert process.end_leftovers() == ["orphan"]
        assert orphan.wait() == -signal.SIGKILL
    assert ours.alive
    assert len(list(records.iterdir())) == 1
    ours.kill()


def test_process_cleanup_keeps_a_process_that_reused_the_pid(records: Path) -> None:
    records.mkdir()
    with subprocess.Popen(["sleep", "1000"]) as stranger:
        record = {"name": "dead long since", "started_at": "1", "owner": 1, "owner_started_at": "never"}
        (records / f"{stranger.pid}.json").write_text(json.dumps(record))
        assert process.end_leftovers() == []
        assert stranger.poll() is None
        stranger.kill()
    assert list(records.iterdir()) == []
