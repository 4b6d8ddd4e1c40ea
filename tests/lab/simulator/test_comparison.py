"""One policy against another on the same simulated cluster, and `trimtab simulate`."""

import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from lab.simulator.scenes import GIB, STEP, flat, scene, sized, workload
from trimtab.cli import run
from trimtab.errors import TrimtabError
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.lab.simulator.autoscaler import Autoscaler
from trimtab.lab.simulator.cluster_generator import generate_cluster, generate_cluster_from_trace
from trimtab.lab.simulator.comparison import load_policies, require_matching_workloads
from trimtab.lab.simulator.metrics import collect_metrics
from trimtab.lab.simulator.world import SimulatedWorld
from trimtab.operator.config.model import OperatorConfig
from trimtab.usage.trace import Trace

SHORT = ("--days", "0.25", "--warm-up", "0.1", "--workloads", "4", "--seed", "3")


def test_generate_cluster_is_deterministic_and_places_each_pod() -> None:
    one, same, other = (generate_cluster(workloads=20, days=1, seed=seed) for seed in (3, 3, 4))
    assert one.workloads == same.workloads != other.workloads
    assert np.array_equal(one.demand.cpu, same.demand.cpu)
    assert len(one.workloads) == 20
    assert {spec.namespace for spec in one.workloads} == {"shop", "platform", "data"}
    assert not SimulatedWorld(one).pending


def test_generate_cluster_makes_a_workload_of_each_recorded_series() -> None:
    steps = np.linspace(0.1, 0.5, 24)[:, None]
    demand = Trace(("Web App/1", "db"), 0.0, STEP, np.hstack([steps, steps]), np.full((24, 2), 1e8))
    found = generate_cluster_from_trace(demand, replicas=2)
    assert {(spec.name, spec.replicas) for spec in found.workloads} == {("web-app-1", 2), ("db-1", 2)}


def test_generate_cluster_accepts_recordings_without_memory_or_with_colliding_names() -> None:
    cpu = np.tile(np.linspace(0.1, 0.5, 24)[:, None], 5)
    cpu[:, 3] = np.nan
    memory = np.full((24, 5), np.nan)
    memory[:, 1] = 1e8
    found = generate_cluster_from_trace(
        Trace(("web_1", "web-1", "db-4", "gone", "db"), 0.0, STEP, cpu, memory), replicas=2
    )
    assert {spec.name for spec in found.workloads} == {"web-1", "web-1-1", "db-4", "db-4-4"}
    assert np.nanmin(found.demand.memory[:, 0]) == 64 * 2**20
    sizes = {spec.name: spec.containers[0].resources.memory_request for spec in found.workloads}
    assert max(sizes.values(), key=lambda size: size or 0) == sizes["web-1-1"]
    with pytest.raises(TrimtabError, match="no series with CPU usage"):
        generate_cluster_from_trace(Trace(("gone",), 0.0, STEP, cpu[:, 3:4], memory[:, 3:4]))


def test_comparison_does_not_starve_a_pod_of_what_it_had_before_its_node_went() -> None:
    world = SimulatedWorld(
        scene([workload("web", sized(200, GIB), replicas=4)], flat((0.1, GIB / 2)), nodes=4)
    )
    autoscaler = Autoscaler(world)
    drained = 0
    for _ in range(12):
        world.step(STEP)
        autoscaler.reconcile()
        found = collect_metrics(world, needed=0)
        drained += sum(each.reason == "Drained" for each in found.events)
        assert found.cpu_starved == 0
    assert drained


def test_nodes_go_when_half_of_them_is_not_asked_for_and_come_back_when_pods_wait() -> None:
    web = WorkloadKey("Deployment", "default", "web")
    world = SimulatedWorld(
        scene([workload("web", sized(1800, GIB), replicas=8)], flat((0.1, GIB / 2)), nodes=4)
    )
    autoscaler = Autoscaler(world)

    def pass_by(steps: int) -> int:
        for _ in range(steps):
            world.step(STEP)
            autoscaler.reconcile()
        return int(world.nodes.active.sum())

    assert pass_by(6) == 4
    world.scale_workload(web, 3)
    assert pass_by(12) == 2
    assert len(world.pods) == 3
    assert not world.pending
    assert Counter(each.reason for each in world.events)["Drained"] >= 1
    world.scale_workload(web, 7)
    assert pass_by(3) == 4
    assert not world.pending


def test_simulate_prints_each_policy_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "none", "percentile", *SHORT, "--output", "json"]) == 0
    none, percentile = json.loads(capsys.readouterr().out)
    assert (none["policy"], percentile["policy"]) == ("none", "percentile")
    assert none["changes_day"] == 0
    assert none["nodes"] > 0
    assert 0 < none["cpu_slack"] < 1


def test_comparison_table_shows_whole_names_and_numbers_in_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["simulate", "none", "autopilot-window", *SHORT]) == 0
    table = capsys.readouterr().out
    assert "SLACK" in table
    assert "…" not in table


def test_simulate_prints_a_table_and_writes_a_page_with_plots(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(["simulate", "none", *SHORT]) == 0
    assert "…" not in capsys.readouterr().out
    policy = tmp_path / "mine.yaml"
    policy.write_text("kind: OptimizationPolicy\nspec: {mode: Recommend}\n")
    assert run(["simulate", str(policy), *SHORT, "--output", "html"]) == 0
    page = capsys.readouterr().out
    assert page.count("<svg") == 6
    assert "mine.yaml" in page


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nobody"], "strategy 'nobody' is not known"),
        (["gone.yaml"], "gone.yaml: cannot be read"),
        (["none", "--days", "1", "--warm-up", "2"], "--days 1: must be more than --warm-up, 2"),
        (["none", "--timelines", "pages"], "only runs with faults have timelines"),
        (["none", "--workloads", "0"], "--workloads 0: must be at least 1"),
        (["none", "--seed", str(2**64)], "must not be negative, and must be less than 9223372036854775808"),
        (
            ["none", "--days", "0.001", "--warm-up", "0"],
            "--days 0.001: must be at least a step of 5 minutes more",
        ),
        (
            ["none", "--days", "1.001", "--warm-up", "1"],
            "--days 1.001: must be at least a step of 5 minutes more",
        ),
    ],
)
def test_simulate_refuses_in_one_line(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["simulate", *arguments]) == 2
    error_line = capsys.readouterr().err
    assert says in error_line
    assert error_line.count("\n") == 1


def test_comparison_contender_is_nothing_a_strategy_or_a_file(tmp_path: Path) -> None:
    assert load_policies("none") == {}
    (spec,) = load_policies("vpa").values()
    assert spec.strategy.name == "vpa"
    broken = tmp_path / "broken.yaml"
    broken.write_text("spec: [")
    with pytest.raises(TrimtabError, match=r"broken\.yaml: is not valid YAML"):
        load_policies(str(broken))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (b"", r"mine\.yaml: the file has no OptimizationPolicy"),
        (b"\xff\xfe", r"mine\.yaml: is not valid YAML"),
        (b"kind: OptimizationPolicy\nspec: {mode: Boldly}", r"mine\.yaml: spec\.mode: must be one of"),
        (
            b"kind: OptimizationPolicy\nspec: {strategy: {name: vpa, settings: {margin: -1}}}",
            r"mine\.yaml: spec\.strategy: strategy vpa: margin: must be at least 0",
        ),
        (b"kind: OptimizationPolicy\nspec: {strategy: {name: fortune}}", "'fortune' is not known"),
        (
            b"kind: OptimizationPolicy\nspec: {selector: {namespaces: {allow: [prod]}}}",
            r"mine\.yaml: the policy selects no workload; the simulated namespaces are data, platform, shop",
        ),
    ],
)
def test_comparison_rejects_a_file_without_effect(spec: bytes, message: str, tmp_path: Path) -> None:
    policy = tmp_path / "mine.yaml"
    policy.write_bytes(spec)
    with pytest.raises(TrimtabError, match=message):
        require_matching_workloads(str(policy), generate_cluster(workloads=20, days=0.1))


def test_comparison_replaces_the_usage_source_of_a_policy(tmp_path: Path) -> None:
    policy = tmp_path / "mine.yaml"
    policy.write_text("kind: OptimizationPolicy\nspec: {metricsConfig: {provider: metrics-server}}")
    (spec,) = load_policies(str(policy)).values()
    assert OperatorConfig().resolve_source(spec) == ""


def test_simulate_takes_its_demand_from_a_recording(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rows = [f"web,{300 * step},{0.2 + 0.1 * (step % 3)},{2e8 + step}" for step in range(100)]
    recording = tmp_path / "usage.csv"
    recording.write_text("\n".join(["series,t_seconds,cpu_cores,mem_bytes", *rows]) + "\n")
    asked = ["none", "--recording", str(recording), "--days", "0.25", "--warm-up", "0"]
    assert run(["simulate", *asked, "--output", "json"]) == 0
    (none,) = json.loads(capsys.readouterr().out)
    assert none["nodes"] >= 1
    assert none["cpu_slack"] > 0
    assert 0 <= none["over_request"] < 1


def test_simulate_with_faults_lists_faults_and_broken_promises(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    policy = tmp_path / "mine.yaml"
    policy.write_text("kind: OptimizationPolicy\nspec: {mode: Auto, metricsConfig: {minimumHistory: 1h}}\n")
    arguments = ["simulate", "none", str(policy), "--days", "0.6", "--warm-up", "0.1", "--workloads", "4"]
    arguments += ["--seed", "3", "--faults", "heavy"]
    code = run([*arguments, "--output", "json"])
    none, mine = json.loads(capsys.readouterr().out)
    assert sum(mine["faults"].values()) > sum(none["faults"].values())
    assert none["violations"] == []
    assert code == (1 if mine["violations"] else 0)
    assert mine["changes_day"] > 0


def test_simulate_with_faults_writes_a_timeline_of_each_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["simulate", "none", "percentile", *SHORT, "--faults", "light", "--timelines", str(tmp_path / "new")])
    capsys.readouterr()
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"none.html", "percentile.html"}
    page = (tmp_path / "new" / "percentile.html").read_text()
    assert "trimtab simulate percentile --days 0.25" in page
    assert "operator-1 runs" in page


def test_simulate_with_faults_repeats_a_seed_and_prints_every_remark(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printed = []
    for _ in range(2):
        run(["simulate", "percentile", *SHORT, "--faults", "light"])
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert "percentile: " in printed[0]
    assert "promises were" in printed[0]
