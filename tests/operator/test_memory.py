"""What was taken for a moment is given back to the system."""

import subprocess
import sys

import pytest

from trimtab.operator.memory import keep_small

SCRIPT = """
from pathlib import Path
from threading import Thread
from trimtab.operator.memory import keep_small

def held():
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if "RssAnon" in line]
    return int(line.split()[1]) / 1024

def read():
    pieces = [bytes(256 << 10) for _ in range(200)]
    larger = [bytes(8 << 20) for _ in range(20)]
    stays.append(bytes(4096))

keep_small()
stays = []
before = held()
for _ in range(4):
    thread = Thread(target=read)
    thread.start()
    thread.join()
print(held() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_a_big_read_took_is_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 20


def test_another_library_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    keep_small()
