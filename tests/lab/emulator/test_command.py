"""`trimtab stress`: refused clearly, and gone without a trace when it is interrupted."""

from pathlib import Path

import pytest

from trimtab.cli import run
from trimtab.lab.workloads import WorkloadLibrary, generate


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = generate("step", count=2, duration=3600.0, step=300.0, cores_high=0.2)
    WorkloadLibrary(tmp_path).save(made, id="steps")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gone"], "workload gone: it does not exist"),
        (["steps", "--pods", "3"], "--pods 3: workload steps has 2 series"),
        (["steps", "--strategy", "guess"], "strategy 'guess' is not known"),
        (["steps", "--setting", "window"], "--setting window: write it as name=value"),
        (["steps", "--period", "soon"], "--period: "),
        (["steps", "--period", "10ms"], "--period 10ms: must be at least 1s"),
        (["steps", "--scale", "0"], "--scale 0: must be a finite number above 0"),
        (["steps", "--scale", "inf"], "--scale inf: must be a finite number above 0"),
        (["steps", "--cpu-limit", "0.5"], "--cpu-limit 0.5: must be at least 1"),
        (["steps", "--memory-limit", "nan"], "--memory-limit nan: must be at least 1"),
        (["steps", "--kubeconfig", "/nowhere"], "/nowhere"),
    ],
)
def test_emulate_command_rejects_what_cannot_run_before_making_pods(
    folder: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["stress", *arguments, "--namespace", "lab", "--folder", str(folder)]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
