"""`trimtab history`: what an operator's store remembers, for people and programs."""

import asyncio
import csv
import io
import json
import sqlite3
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from trimtab.cli import run
from trimtab.store import HistoryRecord, Store
from trimtab.store.history import HistoryRepository

HOUR = 3600.0
BEFORE = {"app": {"requests": {"cpu": "500m", "memory": "1Gi"}}}
AFTER = {"app": {"requests": {"cpu": "250m", "memory": "600Mi"}}}


def entry(name: str, what: str, *, ago: float, **more: Any) -> HistoryRecord:
    facts: dict[str, Any] = {"kind": "Deployment", "who": "policy shop/all", "why": "", "cluster": "c"}
    return HistoryRecord(timestamp=time.time() - ago, namespace="shop", name=name, what=what, **facts | more)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    records = [
        entry("web", "applied", ago=40 * HOUR, before=BEFORE, after=AFTER),
        entry("web", "recommended", ago=3 * HOUR, container="app", before=BEFORE["app"], after=AFTER["app"]),
        entry("web", "applied", ago=2 * HOUR, before=BEFORE, after=AFTER),
        entry("web", "reverted", ago=HOUR, before=AFTER, after=BEFORE, why="2 of 3 pods are not ready"),
        entry("db", "held", ago=1800, kind="StatefulSet", who="ann", why="the sale"),
    ]
    keep(tmp_path / "trimtab.db", *records)
    return tmp_path / "trimtab.db"


def keep(path: Path, *records: HistoryRecord) -> None:
    async def fill() -> None:
        async with Store.open(path) as opened:
            await opened.history.append(records)

    asyncio.run(fill())


def run_history(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["history", *arguments]) == 0
    return capsys.readouterr().out


def test_history_shows_changes_newest_first_with_reasons(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = run_history(capsys, "--store", str(store))
    heads = [line.split()[1:] for line in out.splitlines() if not line.startswith(" ")]
    assert heads == [
        ["held", "shop/StatefulSet/db"],
        ["reverted", "shop/Deployment/web"],
        ["applied", "shop/Deployment/web"],
    ]
    assert "    cpu 500m, memory 1Gi -> cpu 250m, memory 600Mi\n" in out
    assert "    policy shop/all: 2 of 3 pods are not ready\n" in out
    assert "    ann: the sale\n" in out
    assert max(map(len, out.splitlines())) <= 80


def test_history_selects_one_workload_and_period(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run_history(capsys, "shop/deploy/web", "--since", "168h", "--top", "2", "--store", str(store))
    assert out.count("shop/Deployment/web") == 2
    assert "… and older ones: --top 0 shows all." in out
    assert run_history(capsys, "shop/deploy/db", "--store", str(store)) == "nothing in the last 24h\n"


def test_history_prints_json_and_csv(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = ["--what", "recommended", "--what", "applied", "--store", str(store)]
    found = json.loads(run_history(capsys, *records, "--output", "json"))
    assert [each["what"] for each in found] == ["applied", "recommended"]
    assert found[0]["after"] == AFTER
    rows = list(csv.DictReader(io.StringIO(run_history(capsys, *records, "--output", "csv"))))
    assert [row["container"] for row in rows] == ["", "app"]
    assert rows[1]["after"] == "cpu 250m, memory 600Mi"


def test_history_reads_the_store_of_the_operators_configuration(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(f"store: {{url: {store}}}\n")
    assert "shop/StatefulSet/db" in run_history(capsys, "--config", str(config))
    monkeypatch.setenv("TRIMTAB_STORE__URL", str(store))
    assert "shop/StatefulSet/db" in run_history(capsys)


def test_history_separates_clusters_that_share_a_store(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(store, entry("web", "applied", ago=60, cluster="other"))
    out = run_history(capsys, "--store", str(store))
    assert "shop/Deployment/web  in other\n" in out
    assert "shop/StatefulSet/db  in c\n" in out
    assert "  in " not in run_history(capsys, "--store", str(store), "--cluster", "c")
    rows = csv.DictReader(io.StringIO(run_history(capsys, "--store", str(store), "--output", "csv")))
    assert [row["cluster"] for row in rows] == ["other", "c", "c", "c"]


def test_history_reads_no_more_than_it_shows(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["trimtab.cli.history"], "PAGE_SIZE", 1)
    pages: list[Sequence[str]] = []
    find = HistoryRepository.find

    async def counting(self: HistoryRepository, **wanted: Any) -> list[HistoryRecord]:
        pages.append(wanted["what"])
        return await find(self, **wanted)

    monkeypatch.setattr(HistoryRepository, "find", counting)
    keep(store, *(entry("web", "applied", ago=number) for number in range(1, 20)))
    assert "older ones" in run_history(capsys, "--top", "2", "--store", str(store))
    assert sum("applied" in words for words in pages) == 3


def test_history_escapes_control_characters(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(store, entry("web", "held", ago=1, who="eve\x1b[2J", why="sale\x1b]0;pwned\x07\nand\x9b31m more"))
    for output in ("table", "csv"):
        out = run_history(capsys, "--store", str(store), "--output", output)
        assert "sale\\x1b]0;pwned\\x07" in out
        assert all(each == "\n" or each.isprintable() for each in out)


def test_history_does_not_modify_the_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As where --store was written for --config: a file that is no store would be set aside."""
    config, others, empty = tmp_path / "config.yaml", tmp_path / "others.db", tmp_path / "empty.db"
    config.write_text("store: {url: trimtab.db}\n" * 100)
    empty.touch()
    with closing(sqlite3.connect(others)) as connection:
        connection.execute("CREATE TABLE mine (number INTEGER)")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for path, says in (
        (config, "the file is not a store"),
        (others, "contains no Trimtab store"),
        (empty, "contains no Trimtab store"),
    ):
        assert run(["history", "--store", str(path)]) == 2
        assert says in capsys.readouterr().err
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["--store", "nowhere.db"],
            "nowhere.db: the file does not exist; name the operator's store",
        ),
        (["--since", "yesterday"], "--since: "),
        (["--top", "-1"], "--top -1: must be 0 or more"),
        (["web"], "WORKLOAD web: write it as NAMESPACE/KIND/NAME"),
        (["--store", "mysql://db"], "is not a supported store"),
    ],
)
def test_history_rejects_wrong_usage_in_one_line(
    arguments: list[str],
    says: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["history", *arguments]) == 2
    err = capsys.readouterr().err
    assert says in err
    assert len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
