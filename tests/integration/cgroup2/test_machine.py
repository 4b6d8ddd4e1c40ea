"""The tests in `inside`, on a real cgroup v2 kernel."""

import compileall
import sys
from pathlib import Path

import pytest

import trimtab
from harness import UnavailableError
from harness.cluster import cgroup2vm

HERE = Path(__file__).parent


@pytest.mark.timeout(600)
def test_inner_tests_pass_on_a_real_cgroup_v2_kernel() -> None:
    inside, tests = HERE / "inside", HERE.parent
    # What is compiled here is read there, and to compile takes an emulated processor long.
    for folder in (inside, tests / "harness", Path(trimtab.__file__).parent):
        compileall.compile_dir(folder, quiet=2)
    command = [
        *("env", f"PYTHONPATH={tests}", "PYTHONDONTWRITEBYTECODE=1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1"),
        *(
            sys.executable,
            "-m",
            "pytest",
            "-c",
            str(inside / "pytest.ini"),
            f"--confcutdir={inside}",
            str(inside),
        ),
    ]
    try:
        outcome = cgroup2vm.run(command, folder=tests.parent, timeout=560)
    except UnavailableError as why:
        pytest.skip(str(why))
    assert outcome.status == 0, outcome.output
