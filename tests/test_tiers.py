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


def test_fast_test_may_list_the_fonts_of_the_machine() -> None:
    """As matplotlib does for a user who has never drawn: with a new home, two tests failed."""
    sys.audit("subprocess.Popen", "fc-list", ["fc-list", "--help"], None, None)
