"""Test every output format of a scan against golden files.

`TEST_GOLDEN=write pytest tests/scan/render/test_formats.py` rewrites them; review the difference before you commit it.
"""

import csv
import dataclasses
import io
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest
import yaml
from rich.console import Console

from scan.scans import container, scan_result, workload_finding
from trimtab.api.quantity import MIB
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.scan.model import ScanResult, SkippedWorkload
from trimtab.scan.render.document import build_document, render_csv
from trimtab.scan.render.html import WIDTH, render_page
from trimtab.scan.render.markdown import render_markdown
from trimtab.scan.render.summary import format_title
from trimtab.scan.render.table import render_scan

GOLDEN = Path(__file__).parent / "golden"


def print_scan(width: int, *, top: int = 10, terminal: bool = False) -> str:
    text = io.StringIO()
    console = Console(
        file=text,
        width=width,
        force_terminal=terminal,
        color_system="standard" if terminal else None,
        highlight=False,
        legacy_windows=False,
    )
    for line in render_scan(scan_result(), width=width, top=top):
        console.print(line)
    return text.getvalue()


RENDERERS: dict[str, Callable[[], str]] = {
    "narrow.txt": lambda: print_scan(80),
    "wide.txt": lambda: print_scan(160),
    "colours.txt": lambda: print_scan(80, terminal=True),
    "scan.json": lambda: json.dumps(build_document(scan_result()), indent=2) + "\n",
    "scan.yaml": lambda: yaml.safe_dump(build_document(scan_result()), sort_keys=False),
    "scan.csv": lambda: render_csv([scan_result(), scan_result(context="staging")]),
    "scan.md": lambda: render_markdown(scan_result(), top=2),
    "scan.html": lambda: render_page([scan_result(), scan_result(context="staging")]),
}


@pytest.mark.parametrize("name", RENDERERS)
def test_renderers_match_golden_files(name: str) -> None:
    rendered, golden = RENDERERS[name](), GOLDEN / name
    if os.environ.get("TEST_GOLDEN") == "write":
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(rendered)
    assert rendered == golden.read_text()


def test_render_scan_fits_eighty_columns() -> None:
    assert max(map(len, print_scan(80).splitlines())) <= 80


def test_render_scan_uses_colour_only_on_terminal() -> None:
    assert "\x1b" not in print_scan(80)
    assert "\x1b" in print_scan(80, terminal=True)


def test_render_scan_counts_omitted_rows() -> None:
    assert "… and 3 more" in print_scan(80, top=1)
    assert "more: --top 0" not in print_scan(80, top=0)


def test_render_csv_has_row_per_container_of_every_cluster() -> None:
    rows = list(csv.DictReader(io.StringIO(RENDERERS["scan.csv"]())))
    assert [row["context"] for row in rows] == ["prod"] * 5 + ["staging"] * 5
    assert rows[0]["risks"] == "OOM"
    assert rows[2]["container"] == "mesh|proxy"


def test_render_markdown_escapes_names() -> None:
    row = next(line for line in render_markdown(scan_result(), top=0).splitlines() if "mesh" in line)
    assert row.replace("\\|", "").count("|") == 9


def test_render_page_is_self_contained_with_valid_charts() -> None:
    text = RENDERERS["scan.html"]()
    assert "<script" not in text
    assert "src=" not in text
    for chart in text.split("<svg ")[1:]:
        ET.fromstring("<svg " + chart.partition("</svg>")[0] + "</svg>")


def test_render_markdown_fits_comment_however_many_are_skipped() -> None:
    skipped = tuple(
        SkippedWorkload(
            WorkloadKey("CronJob", "a-long-namespace", f"a-long-name-{number}"), "no usage of it was seen"
        )
        for number in range(5000)
    )
    found = dataclasses.replace(scan_result(), skipped=skipped)
    short = render_markdown(found, top=10)
    assert len(short) < 65_536
    assert "and 4900 more" in short
    assert "a-long-name-4999" in render_markdown(found, top=0)


def test_limits_that_change_are_named_below_a_table_without_them() -> None:
    now, then = Resources(100, 200, MIB, None), Resources(100, 300, MIB, 2 * MIB)
    many = [workload_finding(f"web-{n}", container(current=now, recommended=then)) for n in range(12)]
    text = render_markdown(scan_result(*many), top=0)
    assert "shop/deploy/web-0 cpu 200m→300m, memory none→2Mi; shop/deploy/web-1" in text
    assert "and 2 more: --output json lists all." in text
    same = workload_finding("web", container(current=now, recommended=now))
    assert "Limits" not in render_markdown(scan_result(same), top=0)


def test_render_page_bars_fit_chart() -> None:
    none, much = Resources(None, None, None, None), Resources(4000, None, 64 * MIB, None)
    drawn = render_page(
        [scan_result(workload_finding("web", container(current=none, recommended=much, pods=5), pods=5))]
    )
    assert max(float(width) for width in re.findall(r'<rect [^>]*width="([0-9.]+)"', drawn)) < WIDTH


def test_title_and_warning_say_how_little_usage_there_is() -> None:
    (only,) = workload_finding("web", container(current=Resources(), recommended=Resources())).containers

    def observed(seconds: float) -> ScanResult:
        evidence = msgspec.structs.replace(
            only.evidence, run_seconds=seconds, first_sample_at=only.evidence.last_sample_at - seconds
        )
        return scan_result(workload_finding("web", dataclasses.replace(only, evidence=evidence)))

    assert format_title(observed(840)) == "prod: 1 workload, 14 minutes of 14 days, strategy trimtab"
    assert "Little data: 14 minutes of usage; recommendations are rough." in render_markdown(
        observed(840), top=0
    )
    assert "3 days of 14 days" in format_title(observed(3 * 86400))
    assert "Little data" not in render_markdown(observed(3 * 86400), top=0)
    assert format_title(observed(13.9 * 86400)) == "prod: 1 workload, 14 days, strategy trimtab"


@pytest.mark.parametrize("width", [20, 40, 60, 79])
def test_render_scan_shows_names_and_amounts_on_small_terminal(width: int) -> None:
    shown = print_scan(width).replace("\n", "").replace(" ", "")
    for text in ("shop/deploy/killed", "shop/deploy/web:app", "shop/sts/held-back", "256Mi→360Mi", "a month"):
        assert re.search(".{0,60}".join(map(re.escape, text.replace(" ", ""))), shown)
    assert "…" not in print_scan(width)
