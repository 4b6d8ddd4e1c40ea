"""The tiers of tests: those outside tests/integration run in their own process."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest


@pytest.mark.parametrize(
    "start",
    [
        lambda: subprocess.run([sys.executable, "-c", ""], check=True),
        lambda: os.system("true"),
        os.fork,
    ],
    ids=["subprocess", "system", "fork"],
)
def test_fast_test_cannot_start_a_process(start: Callable[[], object]) -> None:
    with pytest.raises(pytest.fail.Exception, match="belongs in tests/integration"):
        start()


@pytest.mark.parametrize("program", ["fc-list", "lscpu"])
def test_fast_test_may_start_what_a_library_asks_once(program: str) -> None:
    """Two tests failed for a user who had never drawn, and all that use `numpy.testing` with the oldest numpy."""
    sys.audit("subprocess.Popen", program, [program], None, None)
