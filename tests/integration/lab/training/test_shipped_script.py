"""The script that made the shipped networks still runs to its end, with less of everything."""

import json
import runpy
import sys
from pathlib import Path

import pytest

from trimtab.lab.workloads import generate
from trimtab.lab.workloads.export import export
from trimtab.sizing import strategy

SCRIPT = Path(__file__).parents[4] / "examples" / "train_weights.py"


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sets that it reads, each a few series of a generator."""
    folder = tmp_path_factory.mktemp("traces")
    for number, name in enumerate(("planetlab", "alibaba_tianchi_apps", "bitbrains_rnd", "crane_dsp")):
        (folder / name).mkdir()
        made = generate("diurnal_web", count=3, seed=number, step=900.0, duration=8 * 86400.0)
        export(made, folder / name / f"{name}.parquet")
    return folder


@pytest.mark.parametrize(
    ("learner", "used_by"), [("forecaster", "forecaster"), ("ppo", "learned"), ("sac", "learned")]
)
def test_shipped_training_script_makes_usable_weights(
    learner: str,
    used_by: str,
    traces: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    brief = ("--brief", "--workers", "1", "--folder", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), str(traces), "--learner", learner, *brief])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    assert capsys.readouterr().out.startswith("   1 ")
    written = json.loads((tmp_path / "weights.json").read_text())
    assert (written["learner"], written["updates"]) == (learner, 2)
    assert written["command"].endswith("--brief")
    strategy(used_by, 1, weights=str(tmp_path / "weights.npz"))  # refuses what it cannot use
