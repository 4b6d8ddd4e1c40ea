"""A process whose image ships compiled kernels, as a pod has them: an empty cache, and a folder that it cannot change."""

import os
import subprocess
import sys
from pathlib import Path

CALL = (
    "import os, numpy as np\n"
    "from trimtab.kernel_cache import link_shipped_kernels\n"
    "print('shipped', link_shipped_kernels(os.environ))\n"
    "from trimtab.usage.prometheus.response import read_pairs\n"
    "assert read_pairs(np.frombuffer(b'[]', np.uint8), np.empty(0))"
)


def call(**environment: str) -> str:
    given = {**os.environ, "NUMBA_DEBUG_CACHE": "1", "NUMBA_CPU_NAME": "generic", **environment}
    done = subprocess.run([sys.executable, "-c", CALL], env=given, capture_output=True, text=True, check=True)
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
