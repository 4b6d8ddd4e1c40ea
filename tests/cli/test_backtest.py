"""`trimtab backtest` compares strategies on files, and on a made-up fleet where there are none."""

import csv
import io
import json
from pathlib import Path

import pytest

from trimtab.cli import run


@pytest.fixture
def usage(tmp_path: Path) -> str:
    rows = [f"web,{60 * step},{1 + step % 7},{1e9 + step}" for step in range(600)]
    file = tmp_path / "usage.csv"
    file.write_text("\n".join(["series,t_seconds,cpu_cores,mem_bytes", *rows]) + "\n")
    return str(file)


def test_backtest_table_has_a_row_for_each_strategy_and_the_oracle(
    usage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["backtest", usage, "--strategy", "trimtab,vpa"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[-3:]] == ["trimtab", "vpa", "oracle"]


def test_backtest_names_recordings_after_their_files(usage: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = Path(usage).with_name("[bold]usage[dim].csv")
    Path(usage).rename(file)
    assert run(["backtest", str(file), "--strategy", "vpa"]) == 0
    assert file.name in capsys.readouterr().out.replace("\n", "")


def test_backtest_tries_each_value_of_a_setting(usage: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--strategy", "trimtab,vpa", "--setting", "trimtab.cpu_risk=0.01,0.1", "--output", "json"]
    assert run(["backtest", usage, *asked]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(one["strategy"], one["settings"]) for one in found] == [
        ("trimtab", "cpu_risk=0.01"),
        ("trimtab", "cpu_risk=0.1"),
        ("vpa", ""),
        ("oracle", ""),
    ]
    careful, bold, *_ = found
    assert careful["cpu_slack"] >= bold["cpu_slack"]


def test_backtest_reads_public_formats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f"{60 * step},vm/1,0.0,9.0,{step % 7}\n" for step in range(600))
    (tmp_path / "vm_cpu_readings-file-1-of-195.csv").write_text(rows)
    (tmp_path / "vmtable.csv").write_text("vm/1,s,d,0,1,99,3,10,Unknown,4,8\n")
    for asked in ([], ["--format", "azure"]):
        assert run(["backtest", str(tmp_path), "--strategy", "vpa", "--output", "json", *asked]) == 0
        assert json.loads(capsys.readouterr().out)[0]["containers"] == 1


def test_backtest_csv_has_a_row_per_strategy(usage: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["backtest", usage, "--strategy", "vpa", "--output", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["strategy"] for row in rows] == ["vpa", "oracle"]
    assert float(rows[0]["cpu_slack"]) > 0


def test_backtest_html_is_one_page_of_all_recordings(
    usage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.csv"
    other.write_text(Path(usage).read_text())
    assert run(["backtest", usage, str(other), "--strategy", "vpa", "--output", "html"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("<!doctype html>")
    assert text.count("<html") == 1
    assert f"<h1>{usage}</h1>" in text
    assert f"<h1>{other}</h1>" in text


def test_backtest_rejects_recordings_that_are_too_short(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one.csv").write_text("series,t_seconds,cpu_cores\nweb,0,1\n")
    assert run(["backtest", str(tmp_path / "one.csv"), "--strategy", "vpa"]) == 2
    assert "one.csv: too short to score: 1 sample, 1 minute apart" in capsys.readouterr().err


def test_backtest_demo_generates_a_fleet(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["backtest", "--demo", "--strategy", "vpa", "--update", "6h", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["containers"] == 40


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        (
            [],
            "PATH: give recordings, --demo, --prometheus or --found; exactly one of these",
        ),
        (["--demo", "--strategy", "best"], "strategy 'best' is not known; there are:"),
        (["--demo", "--update", "1d"], "--update: duration"),
        (["--demo", "--update", "0s"], "--update: must be more than 0"),
        (["--demo", "--setting", "vpa"], "--setting vpa: write it as name.key=value"),
        (
            ["--demo", "--setting", "peak.margin=1"],
            "--setting peak.margin=1: this strategy is not compared",
        ),
        (["--demo", "--setting", "vpa.margin=-1"], "strategy vpa: margin"),
        (["--demo", "--setting", "vpa.half_life=1e-300"], "strategy vpa: half_life: must be at least 1"),
        (
            ["--demo", "--setting", "vpa.half_life=inf"],
            "strategy vpa: half_life: input should be a finite number",
        ),
        (["none.csv"], "none.csv: the file does not exist"),
        (
            ["none.csv", "--namespace", "shop"],
            "--namespace: applies only to usage of a cluster; add --prometheus or",
        ),
        (["none.csv", "--format", "gwa"], "format 'gwa' is not known; there are: trimtab, bitbrains,"),
    ],
)
def test_backtest_rejects_wrong_usage_in_one_line(
    asked: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["backtest", *asked]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"trimtab: {line}")
    assert error.count("\n") == 1
