"""The examples of the simulator do what they say."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("cluster", ["20 pods, of which 6 are pending: they need 3 nodes", "14 cores requested, 6.9 used"]),
        (
            "pods",
            ["cpu_request=250", "Error: attempting to set pod memory limit", "1 restart", "replaces it"],
        ),
        ("deployment", ["2 replicas: 99 % of requests", "6 have the new template, 6 ready"]),
        ("vpa", ["vpa       48 h", "trimtab   48 h"]),
        ("stress", ["100%"]),
    ],
)
def test_simulated_example_shows_what_it_promises(
    name: str, says: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    runpy.run_path(str(EXAMPLES / f"simulate_{name}.py"), run_name="__main__")
    shown = capsys.readouterr().out
    for words in says:
        assert words in shown
