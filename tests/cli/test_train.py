"""`trimtab train` rejects options that make no sense, in one line."""

import pytest

from trimtab.cli import run


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        (["--only-recorded"], "--only-recorded: give recordings, --prometheus or --found"),
        (["--step", "5m"], "--step: applies only to usage of a cluster; add --prometheus or --found"),
        (["--updates", "0"], "--updates, --containers, --hours and --every: must each be at least 1"),
        (["--learner", "dqn"], "Invalid value"),
        (["--folder", "/proc/nobody"], "--folder /proc/nobody: cannot be created"),
    ],
)
def test_train_rejects_wrong_usage(asked: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", *asked]) == 2
    assert line in capsys.readouterr().err
