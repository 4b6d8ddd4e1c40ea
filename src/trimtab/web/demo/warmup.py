"""Compile half of the demo's kernels in a second process.

On the first start, compiling takes half of the demo's time, and one process compiles on one core. While the demo compiles
the simulated cluster, which it needs first, a second process compiles sizing and effect models; the demo then finds them
in numba's cache. If that process fails, the demo only takes longer.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from trimtab.operator.kernels import compile_effects, compile_kernels


@contextmanager
def compile_in_background() -> Iterator[None]:
    """Compile in a second process until the block ends or everything is compiled."""
    quiet = subprocess.DEVNULL
    command = [sys.executable, "-m", __name__]
    process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)  # noqa: S603 - our own code
    try:
        yield
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    compile_kernels()
    compile_effects()
