"""`trimtab plan`: what would be done for an intent, on a terminal and as data, without a cluster and with one."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from trimtab.cli import run
from trimtab.errors import TrimtabError
from trimtab.kube.errors import NotFound, Status
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.intents.preview import preview_intent

EXAMPLES = Path(__file__).parents[2] / "examples"
MANIFEST, STATE = EXAMPLES / "plan" / "intent.yaml", EXAMPLES / "plan" / "state.json"


def test_plan_shows_the_plan_its_reason_and_alternatives(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["plan", "-f", str(MANIFEST), "--state", str(STATE)]) == 0
    out = capsys.readouterr().out
    for words in ("meet the missed objectives", "p99-latency is 25, wanted 20", "Alternatives", "examined"):
        assert words in out
    assert max(map(len, out.splitlines())) <= 80


def test_plan_json_has_the_whole_search(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "-f", str(MANIFEST), "--state", str(STATE), "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["plan"]["purpose"] == "Reach"
    assert {each["verdict"] for each in found["plan"]["outcomes"]} == {"Met"}
    assert found["plan"]["alternatives"]


def test_plan_takes_no_action_on_unknown_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = json.loads(STATE.read_text())
    state["objectives"]["p99-latency"] = None
    (tmp_path / "state.json").write_text(json.dumps(state))
    assert run(["plan", "-f", str(MANIFEST), "--state", str(tmp_path / "state.json")]) == 0
    assert "unknown: p99-latency" in capsys.readouterr().out


def test_plan_applies_guardrails_to_a_state_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "operator.yaml"
    config.write_text("intents: {guardrails: [{forbidden: [resizeCPU], maxPriority: 0.3}]}\n")
    arguments = ["-f", str(MANIFEST), "--state", str(STATE), "--config", str(config)]
    assert run(["plan", *arguments]) == 0
    out = capsys.readouterr().out
    assert "priority 0.3" in out
    assert "scaleOut" in out
    assert "resizeCPU" not in out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "NAMESPACE/NAME"),
        (["web"], "NAMESPACE/NAME, like shop/web"),
        (["-f", "x.yaml"], "--file and --state belong together"),
        (["-f", "x.yaml", "--state", "x.json"], "x.yaml"),
        (["-f", str(EXAMPLES / "intent.yaml"), "--state", str(STATE)], "no KPIProfile"),
    ],
)
def test_plan_rejects_wrong_input_in_one_line(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", *arguments]) == 2
    said = capsys.readouterr().err
    assert line in said
    assert said.count("\n") == 1


def test_plan_rejects_a_file_that_is_not_a_manifest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "notes.yaml"
    file.write_text("to do\n")
    assert run(["plan", "-f", str(file), "--state", str(STATE)]) == 2
    assert "must have one Intent, and has 0" in capsys.readouterr().err
    file.write_bytes(b'{"objectives": {"p99": "\xff"}}')
    assert run(["plan", "-f", str(MANIFEST), "--state", str(file)]) == 2
    assert str(file) in capsys.readouterr().err


@pytest.mark.parametrize(
    ("reason", "line"),
    [("", "has no Intent kind; .* kubectl apply --server-side"), ("NotFound", "the Intent does not exist")],
)
async def test_plan_distinguishes_a_missing_kind_from_a_missing_intent(reason: str, line: str) -> None:
    class Server:
        async def get(self, *_: object, **__: object) -> None:
            raise NotFound(Status(message="404 page not found", reason=reason, code=404))

    server: Any = Server()
    with pytest.raises(TrimtabError, match=line):
        await preview_intent(server, OperatorConfig(), ("shop", "web"), now=time.time())
