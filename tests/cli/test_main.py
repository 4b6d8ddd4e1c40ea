"""The contract of every command: quick help, one line for an error, and a meaningful exit code."""

import importlib
import os
import sys
from dataclasses import replace

import pytest

from scan.scans import scan_result
from trimtab import __version__
from trimtab.cli import COMMANDS, module_name, run
from trimtab.cli._common.scan_options import ScanOptions, parse_key_values
from trimtab.errors import TrimtabError
from trimtab.scan.model import ScanResult


def output_of(captured: pytest.CaptureFixture[str]) -> tuple[str, str]:
    out, err = captured.readouterr()
    return out, err


def test_version_option_prints_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert output_of(capsys) == (f"{__version__}\n", "")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_help_has_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"]) == 0
    out, _ = output_of(capsys)
    assert COMMANDS[name].split()[0] in out
    assert f"\n    trimtab {name}" in out


@pytest.mark.parametrize("name", COMMANDS)
def test_command_list_matches_each_commands_help(name: str) -> None:
    command = getattr(importlib.import_module(f"trimtab.cli.{module_name(name)}"), module_name(name))
    assert command.__doc__.splitlines()[0] == COMMANDS[name]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["crdz"], 'Unknown command "crdz". Did you mean "crds"?'),
        (["crds", "--chekc"], "Unknown option: --chekc. Did you mean --check?"),
        (["crds", "surplus"], 'Unexpected argument "surplus".'),
        (["crds", "--output", "xml"], 'Invalid value "xml" for --output.'),
        (["crds", "--directory"], "--directory requires an argument"),
        (["crds", "--check"], "--check: needs --directory"),
        (["scan", "--days", "inf"], "--days inf: must be a number of days, and more than 0"),
        (["doctor", "--days", "inf"], "--days inf: must be a number of days, and more than 0"),
        (["backtest", "--found", "--days", "inf"], "--days inf: must be a number of days, and more than 0"),
        (
            ["plan", "shop/web", "--config", "nowhere.yaml"],
            "--config nowhere.yaml: cannot be read: No such file",
        ),
        (["demo", "--address", "nowhere"], "address nowhere: write it as HOST:PORT"),
        (["demo", "--headless", "--seed", "-1"], "--seed -1: must not be negative"),
        (["simulate", "--seed", "-1"], "--seed -1: must not be negative"),
        (["simulate", "--days", "inf"], "--days inf: must be finite"),
        (["simulate", "--warm-up", "-1"], "--warm-up -1: must be 0 or more days"),
        (["cri", "--deadline", "-1"], "--deadline -1: must be a number of seconds"),
        (["train", "--seed", "-1"], "--seed -1: must not be negative"),
        (["workload", "generate", "--seed", "-1"], "--seed -1: must not be negative"),
        (["backtest", "--demo", "--minimum-change", "-1"], "--minimum-change -1: must be 0 or more"),
        (["backtest", "--demo", "--stabilization", "48h"], "--stabilization: must be 24h or less"),
    ],
)
def test_main_reports_wrong_usage_in_one_line_with_exit_2(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    out, err = output_of(capsys)
    assert out == ""
    assert err.startswith("trimtab: ")
    assert named in err
    assert err.count("\n") == 1


def test_map_settings_are_given_entry_by_entry() -> None:
    given = ["tenant=a=b", "labels.cluster=prod", "labels.zone=eu.1"]
    assert parse_key_values("--source-setting", given) == {
        "tenant": "a=b",
        "labels": {"cluster": "prod", "zone": "eu.1"},
    }
    for wrong in ("tenant", "=a", ".a=b"):
        with pytest.raises(TrimtabError, match="write it as name=value"):
            parse_key_values("--source-setting", [wrong])


@pytest.mark.parametrize("many", [1, 400])
def test_scan_keeps_its_exit_code_when_the_pipe_closes(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], many: int
) -> None:
    """The output fits the pipe's buffer when the reader is gone, or it is longer."""
    one = scan_result()

    async def look(_self: ScanOptions, *_: object, **__: object) -> ScanResult:
        return replace(one, workloads=one.workloads * many)

    monkeypatch.setattr(ScanOptions, "scan", look)
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        assert run(["scan", "--context", "prod", "--fail-on", "waste>1%", "--output", "json"]) == 1
    assert capfd.readouterr().err.startswith("trimtab: waste is ")
