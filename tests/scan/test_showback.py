"""Costs by a label of the workloads."""

from dataclasses import replace

import msgspec
import pytest
import yaml

from scan.scans import example_findings, scan_result
from trimtab.cli import run
from trimtab.scan.model import WorkloadFinding
from trimtab.scan.render.document import build_document
from trimtab.scan.render.table import render_groups
from trimtab.scan.showback import group_costs


def labelled(found: WorkloadFinding, **labels: str) -> WorkloadFinding:
    return replace(found, workload=msgspec.structs.replace(found.workload, labels=tuple(labels.items())))


killed, web, held, right = example_findings()
FINDINGS = (labelled(killed, team="b"), labelled(web, team="a"), labelled(held, team="b"), right)


def test_costs_are_summed_up_by_label_and_the_most_expensive_comes_first() -> None:
    found = group_costs(FINDINGS, "team")
    assert [(each.name, each.workloads) for each in found] == [("a", 1), ("b", 2), (None, 1)]
    assert [each.cost for each in found] == pytest.approx([web.cost, killed.cost + held.cost, right.cost])
    assert sum(each.saving for each in found) == pytest.approx(sum(each.saving for each in FINDINGS))
    (namespace,) = group_costs(FINDINGS, "namespace")
    assert (namespace.name, namespace.workloads) == (web.key.namespace, 4)


def test_costs_are_summed_up_by_annotation_where_there_is_no_label() -> None:
    annotated = msgspec.structs.replace(
        FINDINGS[0].workload, labels=(), annotations=(("example.com/centre", "<b>7</b>"),)
    )
    found = group_costs((replace(FINDINGS[0], workload=annotated), *FINDINGS[1:]), "example.com/centre")
    assert {(each.name, each.workloads) for each in found} == {("<b>7</b>", 1), (None, 3)}


def test_groups_are_in_the_document_and_in_a_table() -> None:
    scan = scan_result(*FINDINGS)
    assert "groups" not in build_document(scan)
    document = build_document(scan, group_by="team")
    assert document["groupBy"] == "team"
    assert [each["name"] for each in document["groups"]] == ["a", "b", None]
    assert yaml.safe_load(yaml.safe_dump(document["groups"]))[0]["costMonth"] == round(web.cost, 2)
    table = render_groups(scan, "team")
    assert list(table.columns[0].cells) == ["a", "b", "(none)"]
    assert str(next(iter(table.columns[2].cells))).startswith("$")


def test_scan_rejects_groups_in_a_format_without_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["scan", "--group-by", "team", "--output", "csv"]) == 2
    assert "--group-by: has no effect with --output csv" in capsys.readouterr().err
