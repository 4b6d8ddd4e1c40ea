"""Memory used for a moment is returned to the system."""

import subprocess
import sys

import pytest

SCRIPT = """
from pathlib import Path
from threading import Thread
from trimtab.memory_trim import limit_allocator_arenas

def held():
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if "RssAnon" in line]
    return int(line.split()[1]) / 1024

def read():
    pieces = [bytes(256 << 10) for _ in range(200)]
    larger = [bytes(8 << 20) for _ in range(20)]
    stays.append(bytes(4096))

limit_allocator_arenas()
stays = []
before = held()
for _ in range(4):
    thread = Thread(target=read)
    thread.start()
    thread.join()
print(held() - before)
"""

LLVM = """
from pathlib import Path
import numba
from trimtab.memory_trim import release_compiler_memory

def held():
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if "RssFile" in line]
    return int(line.split()[1]) / 1024

def compiled(number):
    return numba.njit(lambda x: x + number)(1)

for number in range(2):  # it has work again, now and then
    assert compiled(number) == number + 1
    before = held()
    release_compiler_memory()
    print(before - held())
assert compiled(2) == 3
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_trim_returns_the_memory_of_a_large_read() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 20


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_trim_releases_the_pages_of_a_compiler_that_still_works() -> None:
    done = subprocess.run([sys.executable, "-c", LLVM], capture_output=True, text=True, check=True)
    assert min(map(float, done.stdout.split())) > 20
