"""Test the words of `diff` and `patch` about policies, on a constant scan."""

from dataclasses import replace
from pathlib import Path

import pytest

from scan.scans import container, example_findings, scan_result, workload_finding
from trimtab.api.quantity import MIB
from trimtab.cli import USAGE_ERROR, run
from trimtab.cli._common.scan_options import ScanOptions
from trimtab.kube.kinds.pods import Resources
from trimtab.scan.model import AppliedPolicy, ScanResult, WorkloadFinding
from trimtab.scan.patches.change import build_change

UNREAD = {"optimizationpolicies.trimtab.io": "dev may not list them"}
POLICY = AppliedPolicy("shop/floor", "trimtab", {}, stabilization=0.0, minimum_change=0.5)


def scans(monkeypatch: pytest.MonkeyPatch, found: ScanResult) -> None:
    async def scan(*_: object, **__: object) -> ScanResult:
        return found

    monkeypatch.setattr(ScanOptions, "scan", scan)


@pytest.mark.parametrize("unread", ["optimizationpolicies.trimtab.io", "configmaps", "namespaces"])
@pytest.mark.parametrize("option", ["--write", "--apply", "--directory"])
def test_patch_writes_nothing_if_it_could_not_read_the_policies(
    unread: str,
    option: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scans(monkeypatch, replace(scan_result(), errors_by_resource={unread: "dev may not list them"}))
    target = tmp_path / "web.yaml"
    target.touch()
    form = {
        "--write": ["--format", "manifests", "--file", str(target), "--write"],
        "--apply": ["--apply", "--yes"],
        "--directory": ["--format", "strategic", "--directory", str(tmp_path)],
    }
    assert run(["patch", *form[option]]) == USAGE_ERROR
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        f"trimtab: {option}: writes nothing without the cluster's policies: {unread}: dev may"
    )
    assert "--ignore-policies" in line
    assert [path.name for path in tmp_path.iterdir()] == ["web.yaml"]


@pytest.mark.parametrize("command", ["diff", "patch"])
def test_commands_that_only_print_name_what_they_could_not_read(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scans(monkeypatch, replace(scan_result(), errors_by_resource=UNREAD))
    assert run([command]) == int(command == "diff")
    out, err = capsys.readouterr()
    assert "Not read: optimizationpolicies.trimtab.io: dev may not list them" in err
    assert "forbidden: namespaces secret" in err
    assert "web" in out


def test_diff_names_the_policy_and_what_keeps_the_operator_from_a_change(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    held, web, unselected, _ = example_findings()
    held = replace(held, policy=POLICY, operator_obstacle="held by bob")
    targeted = replace(
        workload_finding("fast", *web.containers), intent="shop/fast", operator_obstacle="an Intent"
    )
    scans(monkeypatch, scan_result(held, replace(web, policy=POLICY), unselected, targeted))
    assert run(["diff"]) == 1
    said = capsys.readouterr().err
    assert "Policy shop/floor (strategy trimtab) sizes shop/deploy/killed, shop/deploy/web." in said
    assert "The operator leaves shop/deploy/killed unchanged: held by bob." in said
    assert "The operator leaves shop/deploy/fast unchanged: an Intent." in said
    assert "held-back" not in said, "no policy selects it, so no operator matters to it"


def finding() -> WorkloadFinding:
    sized = container(
        current=Resources(1000, None, 512 * MIB, None), recommended=Resources(700, None, 300 * MIB, None)
    )
    return workload_finding("web", sized)


def test_amounts_stay_by_the_least_change_of_the_policy() -> None:
    by_default, by_policy = build_change(finding()), build_change(replace(finding(), policy=POLICY))
    assert by_default is not None
    assert by_policy is not None
    now, wanted = Resources(cpu_request=1000).cpu, Resources(cpu_request=700).cpu
    assert not by_default.is_near("cpu", now, wanted)
    assert by_policy.is_near("cpu", now, wanted)
