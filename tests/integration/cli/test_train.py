"""`trimtab train` writes a network that `trimtab backtest` can use, and refuses what makes no sense in one line."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.xla import kept_compilations
from trimtab.cli import run
from trimtab.sizing import strategy


@pytest.fixture(scope="module", autouse=True)
def _compiled_files() -> Iterator[None]:
    with kept_compilations():
        yield


def test_train_writes_usable_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    usage = tmp_path / "usage.csv"
    rows = [f"web,{300 * step},{1 + step % 7},{1e9 + step}" for step in range(12 * 30)]
    usage.write_text("\n".join(["series,t_seconds,cpu_cores,mem_bytes", *rows]) + "\n")
    folder = tmp_path / "mine"
    asked = ["--folder", str(folder), "--updates", "1", "--only-recorded", "--output", "json"]
    assert run(["train", str(usage), *asked]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["updates"] == 1
    assert strategy("forecaster", 1, weights=result["weights"]).containers == 1
    card = json.loads((folder / "weights.json").read_text())
    assert card["data"] == ["usage.csv"]
    made_by = "trimtab train usage.csv --learner forecaster --updates 1 --seed 0 --containers 256 --hours 72"
    assert card["command"] == f"{made_by} --only-recorded"
    assert card["curve"] == [[1, pytest.approx(result["last"], abs=1e-5)]]
    assert run(["train", str(usage), *asked, "--seed", "1"]) == 2
    line = f"{folder}: this run was started with other data or settings (seed: 0 then, 1 now); use the same ones, or name another"
    assert line in capsys.readouterr().err


def test_train_resumes_only_with_the_same_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Else the card would claim data and settings that the weights have never seen."""
    usage, folder = tmp_path / "usage.csv", tmp_path / "mine"

    def record(most: int) -> None:
        rows = [f"web,{300 * step},{1 + step % most},{1e9 + step}" for step in range(12 * 30)]
        usage.write_text("\n".join(["series,t_seconds,cpu_cores,mem_bytes", *rows]) + "\n")

    asked = [
        "train",
        str(usage),
        "--folder",
        str(folder),
        "--containers",
        "2",
        "--only-recorded",
        "--updates",
        "1",
    ]
    record(most=7)
    assert run(asked) == 0
    weights, card = (folder / "weights.npz").read_bytes(), (folder / "weights.json").read_text()
    assert run(asked) == 0  # the same again changes nothing
    others = {
        "settings.plan.updates: 1 then, 2 now": [*asked[:-1], "2"],
        "settings.traces.0.steps: 360 then": [word for word in asked if word != "--only-recorded"],
        "settings.traces.0.digest: ": asked,
    }
    for result, words in others.items():
        if words is asked:
            record(most=5)
        capsys.readouterr()
        assert run(words) == 2
        assert f"this run was started with other data or settings ({result}" in capsys.readouterr().err
        assert (folder / "weights.npz").read_bytes() == weights
        assert (folder / "weights.json").read_text() == card


@pytest.mark.parametrize(
    ("learner", "hours", "line"),
    [
        ("forecaster", 3, "the recordings are too short: training needs at least three hours"),
        ("ppo", 168, "no recording is as long as an episode, 168 hours; use fewer --hours"),
    ],
)
def test_train_skips_short_recordings_with_a_warning(
    learner: str, hours: int, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    usage = tmp_path / "usage.csv"
    rows = [f"web,{300 * step},{1 + step % 7},{1e9 + step}" for step in range(12)]
    usage.write_text("\n".join(["series,t_seconds,cpu_cores,mem_bytes", *rows]) + "\n")
    asked = ["--learner", learner, "--folder", str(tmp_path / "mine"), "--only-recorded"]
    assert run(["train", str(usage), *asked]) == 2
    result = " ".join(capsys.readouterr().err.split())
    assert f"usage.csv: skipped: shorter than {hours} hours" in result
    assert line in result
