"""A process whose image ships compiled kernels, as a pod has them: an empty cache, and a folder that it cannot change."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CALL = (
    "import os, numpy as np\n"
    "from trimtab.kernel_cache import link_shipped_kernels\n"
    "print('shipped', link_shipped_kernels(os.environ))\n"
    "from trimtab.usage.prometheus.response import read_pairs\n"
    "assert read_pairs(np.frombuffer(b'[]', np.uint8), np.empty(0))"
)


LOAD = (
    "import os\n"
    "from trimtab.kernel_cache import link_shipped_kernels\n"
    "from trimtab.operator.kernels import load_kernels\n"
    "link_shipped_kernels(os.environ)\n"
    "load_kernels(())"
)


def call(code: str = CALL, **environment: str) -> str:
    given = {**os.environ, "NUMBA_DEBUG_CACHE": "1", "NUMBA_CPU_NAME": "generic", **environment}
    done = subprocess.run([sys.executable, "-c", code], env=given, capture_output=True, text=True, check=True)
    return done.stdout


def test_process_loads_shipped_kernels_and_compiles_nothing(tmp_path: Path) -> None:
    shipped = str(tmp_path / "shipped")
    built = call(NUMBA_CACHE_DIR=shipped)
    assert "shipped False" in built
    assert "data saved to" in built
    ran = call(NUMBA_CACHE_DIR=str(tmp_path / "cache"), NUMBA_SHIPPED_CACHE_DIR=shipped)
    assert "shipped True" in ran
    assert "data loaded from" in ran
    assert "saved to" not in ran


def test_kernels_are_compiled_where_none_are_shipped(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    assert "shipped False" in call(NUMBA_CACHE_DIR=str(tmp_path / "cache"), NUMBA_SHIPPED_CACHE_DIR=missing)


@pytest.mark.parametrize("pattern", ["*.nbi", "*.nbc"])
def test_kernels_are_compiled_where_shipped_ones_are_truncated(tmp_path: Path, pattern: str) -> None:
    shipped, cache = tmp_path / "shipped", tmp_path / "cache"
    call(NUMBA_CACHE_DIR=str(shipped))
    for path in shipped.rglob(pattern):
        path.write_bytes(path.read_bytes()[:40])
    ran = call(LOAD, NUMBA_CACHE_DIR=str(cache), NUMBA_SHIPPED_CACHE_DIR=str(shipped))
    assert "data saved to" in ran
    assert not any(path.is_symlink() for path in cache.rglob("*"))
