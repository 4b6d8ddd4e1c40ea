"""`trimtab explain`: every factor of one workload's size, on a terminal, as data and as a page."""

import json
from pathlib import Path

import pytest
from PIL import Image, ImageColor

from scan.scene import RunCommand, ScannedCluster
from trimtab.api.optimizationpolicy import SizingGoal
from trimtab.scan.render.html import MISSING, USED


def test_explain_lists_factors_with_sources_and_draws_usage(
    ask: RunCommand, lightly_used_cluster: ScannedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = ask("explain", f"{lightly_used_cluster.namespace}/deploy/starved")
    assert code == 0
    for words in (
        "costs $",
        "at risk of OOM",
        "OOM risk",
        "strategy trimtab",
        "cpu_risk 0.02",
        "limit 256Mi",
        "█",
    ):
        assert words in out
    assert max(map(len, out.splitlines())) <= 80


def test_explain_explains_the_sizes_of_a_scan(ask: RunCommand, lightly_used_cluster: ScannedCluster) -> None:
    scanned = json.loads(ask("scan", "-o", "json")[1])["clusters"][0]["workloads"]
    sizes = {each["name"]: each["containers"][0]["recommended"] for each in scanned}
    for kind, name in (("deploy", "naked"), ("cron", "nightly")):
        (found,) = json.loads(
            ask("explain", f"{lightly_used_cluster.namespace}/{kind}/{name}", "-o", "json")[1]
        )["workloads"]
        assert found["containers"][0]["recommended"] == sizes[name]


def test_explain_backtests_strategies_on_the_workloads_history(
    ask: RunCommand, lightly_used_cluster: ScannedCluster
) -> None:
    _, out, _ = ask("explain", f"{lightly_used_cluster.namespace}/StatefulSet/db", "-o", "json")
    found = json.loads(out)
    assert [each["name"] for each in found["workloads"]] == ["db"]
    fared = found["backtest"]["app"]
    assert {"trimtab", "vpa", "krr", "oracle", *(f"goal {goal}" for goal in SizingGoal)} == fared.keys()
    assert fared["oracle"]["cpu_slack"] < fared["vpa"]["cpu_slack"]


def test_explain_shows_cost_and_harm_of_each_goal_in_one_line_each(
    ask: RunCommand, lightly_used_cluster: ScannedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = ask("explain", f"{lightly_used_cluster.namespace}/sts/db")
    rows = [line.split() for line in out.splitlines() if line.startswith("goal ")]
    assert [row[1] for row in rows] == list(SizingGoal)
    assert all(len(row) == 7 and row[-1].startswith("$") for row in rows)
    assert "The first row has the settings in use." in out


def test_explain_html_embeds_its_charts(
    ask: RunCommand, lightly_used_cluster: ScannedCluster, tmp_path: Path
) -> None:
    file = tmp_path / "why.html"
    code, _, _ = ask(
        "explain", f"{lightly_used_cluster.namespace}/cron/nightly", "-o", "html", "--output-file", str(file)
    )
    assert code == 0
    page = file.read_text()
    assert page.count("<svg ") == 2
    assert "src=" not in page


def test_explain_png_shows_usage_and_sizes(
    ask: RunCommand, lightly_used_cluster: ScannedCluster, tmp_path: Path
) -> None:
    file = tmp_path / "why.png"
    code, _, _ = ask(
        "explain", f"{lightly_used_cluster.namespace}/deploy/web", "-o", "png", "--output-file", str(file)
    )
    assert code == 0
    with Image.open(file) as picture:
        assert picture.format == "PNG"
        colours = {colour for _, colour in picture.convert("RGB").getcolors(1 << 20) or ()}
    assert {ImageColor.getrgb(USED), ImageColor.getrgb(MISSING)} <= colours
