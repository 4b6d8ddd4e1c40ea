"""`trimtab scan` on the real API server and a real Prometheus, as a new user would run it."""

import asyncio
import csv
import io
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from cli.test_rejected_input import edited_config
from harness.process import wait_for
from scan.scene import RunCommand, ScannedCluster
from trimtab.cli import INTERRUPTED, run
from trimtab.cli._common import clusters
from trimtab.kube.rest.client import Client
from trimtab.usage.source import UsageQuery, source

Found = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def cluster_scan(
    lightly_used_cluster: ScannedCluster, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """One scan of the town, which several tests look at."""
    file = tmp_path_factory.mktemp("scan") / "scan.json"
    asked = [
        "-n",
        lightly_used_cluster.namespace,
        "--compare",
        "vpa,krr",
        "-o",
        "json",
        "--output-file",
        str(file),
    ]
    assert run(["scan", *asked, *lightly_used_cluster.options]) == 0
    (found,) = json.loads(file.read_text())["clusters"]
    return found  # type: ignore[no-any-return]


@pytest.fixture
def workloads(cluster_scan: dict[str, Any]) -> Found:
    return {found["name"]: found for found in cluster_scan["workloads"]}


async def test_scan_of_a_recording_recommends_the_same(
    lightly_used_cluster: ScannedCluster,
    cluster_scan: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file, now = tmp_path / "usage.csv", time.time()
    namespaces = (lightly_used_cluster.namespace,)
    async with source("prometheus", url=lightly_used_cluster.prometheus) as history:
        usage = await history.read(UsageQuery.last(2 * 86400, now=now, step=300, namespaces=namespaces))
    with file.open("w", newline="") as text:
        rows = csv.writer(text)
        rows.writerow(["series", "t_seconds", "cpu_cores", "mem_bytes"])
        for column, name in enumerate(usage.containers):
            for t, cpu, memory in zip(
                usage.times, usage.cpu[:, column], usage.memory[:, column], strict=True
            ):
                rows.writerow(
                    ["/".join(name), t, "" if np.isnan(cpu) else cpu, "" if np.isnan(memory) else memory]
                )
    asked = [
        "--kubeconfig",
        str(lightly_used_cluster.cluster.kubeconfig),
        "--recording",
        str(file),
        "-o",
        "json",
    ]
    assert await asyncio.to_thread(run, ["scan", "-n", *namespaces, *asked]) == 0
    (found,) = json.loads(capsys.readouterr().out)["clusters"]
    assert found["source"].startswith("recording ")
    assert read_sizes(found) == read_sizes(cluster_scan)


def read_sizes(scan: dict[str, Any]) -> dict[str, Any]:
    return {
        f"{workload['name']} {each['name']}": each["recommended"]
        for workload in scan["workloads"]
        for each in workload["containers"]
    }


def test_scan_sizes_workloads_of_every_kind(cluster_scan: dict[str, Any], workloads: Found) -> None:
    kinds = {found["kind"] for found in workloads.values()}
    assert kinds == {
        "Deployment",
        "StatefulSet",
        "DaemonSet",
        "ReplicaSet",
        "Job",
        "CronJob",
        "Fleet.survey.example",
    }
    assert len(workloads) == 17
    assert cluster_scan["source"].startswith("Prometheus at http://127.0.0.1:")


def test_scan_lists_skipped_workloads_with_reasons(cluster_scan: dict[str, Any]) -> None:
    reasons = {skipped["name"]: skipped["reason"] for skipped in cluster_scan["skipped"]}
    assert reasons == {
        "asleep": "is scaled to zero",
        "unseen": "has no usage in the window",
        "debug": "is a standalone pod without a template",
    }


def test_scan_sorts_risks_before_savings_and_counts_replicas(
    cluster_scan: dict[str, Any], workloads: Found
) -> None:
    names = [found["name"] for found in cluster_scan["workloads"]]
    assert names[0] == "starved"
    assert workloads["starved"]["severity"] == "critical"
    assert workloads["throttled"]["containers"][0]["risks"] == ["throttling"]
    assert names.index("web") < names.index("idle")
    assert workloads["web"]["replicas"] == 3
    assert cluster_scan["totals"]["atRisk"] == {"oom": 1, "throttling": 1}


def test_scan_raises_starved_and_lowers_idle_workloads(workloads: Found) -> None:
    starved, idle, right, naked = (
        workloads[name]["containers"][0] for name in ("starved", "idle", "right", "naked")
    )
    assert starved["recommended"]["limits"]["memory"] == "275Mi"
    assert idle["recommended"]["requests"]["cpu"].endswith("m")
    assert right["recommended"] == right["resources"]
    assert naked["recommended"]["requests"].keys() == {"cpu", "memory"}


def test_scan_cost_of_a_cron_job_is_its_running_time(workloads: Found) -> None:
    nightly, same_size = workloads["nightly"], workloads["import"]
    assert 0 < nightly["costMonth"] < same_size["costMonth"] / 4


def test_scan_compares_other_strategies(workloads: Found) -> None:
    compared = workloads["web"]["containers"][0]["compared"]
    assert compared.keys() == {"vpa", "krr"}
    assert compared["krr"]["requests"]["memory"] == "345Mi"


def test_scan_does_not_compare_a_strategy_with_itself(
    ask: RunCommand, lightly_used_cluster: ScannedCluster
) -> None:
    where = (
        "scan",
        "-n",
        lightly_used_cluster.namespace,
        "--kind",
        "deploy",
        "--strategy",
        "percentile",
        "--setting",
        "quantile=0.5",
    )
    code, out, _ = ask(*where, "--compare", "percentile,vpa,vpa")
    assert code == 0
    assert [line.split() for line in out.splitlines() if "VPA" in line] == [["WORKLOAD", "PERCENTILE", "VPA"]]
    (alone,), (beside,) = (
        json.loads(ask(*where, "-o", "json", *more)[1])["clusters"]
        for more in ((), ("--compare", "percentile"))
    )
    assert [each["containers"][0]["recommended"] for each in beside["workloads"]] == [
        each["containers"][0]["recommended"] for each in alone["workloads"]
    ]


def test_scan_table_has_headline_first_and_fits_eighty_columns(
    ask: RunCommand, lightly_used_cluster: ScannedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = ask("scan", "-n", lightly_used_cluster.namespace)
    lines = out.splitlines()
    assert code == 0
    assert "17 workloads" in lines[0]
    assert any(line.startswith("WORKLOAD") for line in lines)
    assert max(map(len, lines)) <= 80


def test_scan_applies_selectors_kinds_and_prices(
    ask: RunCommand, lightly_used_cluster: ScannedCluster, tmp_path: Path
) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text("cpu: 1\nmemory: 0\ncurrency: CHF\n")
    where = ("scan", "-n", lightly_used_cluster.namespace, "-o", "csv", "--price-file", str(prices))
    _, out, _ = ask(*where, "-l", "tier=front", "--kind", "deploy")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert sorted(row["name"] for row in rows) == ["web", "web-api"]
    web = next(row for row in rows if row["name"] == "web")
    spared = 2000 - int(web["recommended_cpu_request"].removesuffix("m"))
    assert float(web["saving_month"]) == pytest.approx(730 * 3 * spared / 1000, abs=0.01)


def test_scan_follows_policies_and_the_operators_configuration(
    ask: RunCommand, lightly_used_cluster: ScannedCluster
) -> None:
    cluster, namespace = lightly_used_cluster.cluster, lightly_used_cluster.namespace
    cluster.learn()
    policies = f"/apis/trimtab.io/v1alpha1/namespaces/{namespace}/optimizationpolicies"
    floor = {
        "apiVersion": "trimtab.io/v1alpha1",
        "kind": "OptimizationPolicy",
        "metadata": {"name": "floor"},
        "spec": {
            "mode": "Recommend",
            "selector": {"workloadSelector": {"matchLabels": {"app": "idle"}}},
            "metricsConfig": {"percentile": "P50", "minimumHistory": "1h"},
            "resourceBounds": {"cpu": {"min": "770m"}},
        },
    }
    settings = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "trimtab-operator"},
        "data": {
            "config.yaml": "defaultPolicy: {mode: Recommend, resourceBounds: {cpu: {min: 333m}}}\n"
            "prices: {cpu: 1, memory: 0, currency: €}"
        },
    }
    configs = f"/api/v1/namespaces/{namespace}/configmaps"
    cluster.call("POST", policies, floor)
    cluster.call("POST", configs, settings)
    where = ("scan", "-n", namespace, "--selector", "app in (idle, web)", "--home", namespace)
    try:
        code, out, _ = ask(*where, "-o", "json")
        (found,) = json.loads(out)["clusters"]
        code_ignoring, ignoring, _ = ask(*where, "--ignore-policies", "-o", "json")
        _, table, _ = ask(*where)
        _, priced, _ = ask(*where, "--price-cpu", "2", "-o", "json")
    finally:
        cluster.call("DELETE", f"{policies}/floor")
        cluster.call("DELETE", f"{configs}/trimtab-operator")
    assert (code, code_ignoring) == (0, 0)
    assert found["errors"] == {}
    assert found["prices"] == {"cpu": 1.0, "memory": 0.0, "currency": "€"}
    assert json.loads(priced)["clusters"][0]["prices"] == {"cpu": 2.0, "memory": 0.0, "currency": "€"}
    sized = {
        each["name"]: (
            each["policy"],
            each["strategy"],
            each["containers"][0]["recommended"]["requests"]["cpu"],
        )
        for each in found["workloads"]
    }
    assert sized["idle"] == (f"{namespace}/floor", "percentile", "770m")
    assert sized["web"][:2] == ("default", "trimtab")
    (idle,) = (each for each in json.loads(ignoring)["clusters"][0]["workloads"] if each["name"] == "idle")
    assert idle["policy"] is None
    assert idle["containers"][0]["recommended"]["requests"]["cpu"] in {"10m", "11m", "12m"}  # it uses 10m
    assert f"Policy {namespace}/floor (strategy percentile) sizes {namespace}/deploy/idle." in " ".join(
        table.split()
    )


def test_scan_fail_on_sets_the_exit_code(ask: RunCommand, lightly_used_cluster: ScannedCluster) -> None:
    where = ("scan", "-n", lightly_used_cluster.namespace, "-o", "csv")
    code, _, err = ask(*where, "--fail-on", "waste>30%", "--fail-on", "risk>9")
    assert code == 1
    assert err.count("\n") == 1
    assert "allows no waste >30%" in err
    assert ask(*where, "--fail-on", "waste>99%")[0] == 0


def test_scan_writes_the_output_file_atomically(
    ask: RunCommand, lightly_used_cluster: ScannedCluster, tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    code, out, _ = ask("scan", "-n", lightly_used_cluster.namespace, "-o", "html", "--output-file", str(file))
    assert (code, out) == (0, "")
    assert file.read_text().startswith("<!doctype html>")
    assert [found.name for found in tmp_path.iterdir()] == ["report.html"]


def test_interrupted_scan_leaves_no_partial_file(
    ask: RunCommand, lightly_used_cluster: ScannedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    where = ("scan", "-n", lightly_used_cluster.namespace, "--kind", "ds")
    code, _, _ = ask(*where, "-o", "json", "--output-file", str(tmp_path / "report.json"))
    assert code == INTERRUPTED
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def as_many_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each context seems to lead to a cluster of its own."""

    async def uid(client: Client) -> str:
        return client.connection.context

    monkeypatch.setattr(clusters, "get_cluster_uid", uid)


def with_contexts(lightly_used_cluster: ScannedCluster, path: Path, *names: str, **changed: Any) -> str:
    """A kubeconfig with several contexts that lead to one cluster; the last has what is changed."""
    config = yaml.safe_load(lightly_used_cluster.cluster.kubeconfig.read_text())
    (context,) = config["contexts"]
    config["contexts"] = [{**context, "name": name} for name in names]
    if changed:
        (user,) = config["users"]
        config["users"].append({"name": "changed", "user": {**user["user"], **changed}})
        config["contexts"][-1] = {"name": names[-1], "context": {**context["context"], "user": "changed"}}
    config["current-context"] = names[0]
    path.write_text(yaml.safe_dump(config))
    return str(path)


def test_scan_counts_contexts_of_one_cluster_once(
    lightly_used_cluster: ScannedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubeconfig = with_contexts(lightly_used_cluster, tmp_path / "config", "admin", "viewer")
    given = [
        "--kubeconfig",
        kubeconfig,
        "--prometheus",
        lightly_used_cluster.prometheus,
        "-n",
        lightly_used_cluster.namespace,
    ]
    assert run(["scan", "--all-contexts", "-o", "json", *given]) == 0
    out, err = capsys.readouterr()
    assert [found["context"] for found in json.loads(out)["clusters"]] == ["admin"]
    assert err == "trimtab: viewer: the same cluster as admin; it is counted once\n"


def test_scan_prefers_the_context_that_sees_all_namespaces(
    lightly_used_cluster: ScannedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A context without any right does not prevent a report of the others."""
    kubeconfig = with_contexts(
        lightly_used_cluster, tmp_path / "config", "admin", "nobody", **{"as": "nobody"}
    )
    given = [
        "--kubeconfig",
        kubeconfig,
        "--prometheus",
        lightly_used_cluster.prometheus,
        "-n",
        lightly_used_cluster.namespace,
    ]
    assert run(["scan", "--context", "nobody", "--context", "admin", "-o", "json", *given]) == 0
    out, err = capsys.readouterr()
    assert [found["context"] for found in json.loads(out)["clusters"]] == ["admin"]
    assert err == "trimtab: nobody: the same cluster as admin; it is counted once\n"


def test_scan_merges_several_contexts_into_one_report(
    lightly_used_cluster: ScannedCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    as_many_clusters: None,
) -> None:
    config = yaml.safe_load(lightly_used_cluster.cluster.kubeconfig.read_text())
    (context,) = config["contexts"]
    config["contexts"] = [{**context, "name": name} for name in ("blue", "green")]
    config["current-context"] = "blue"
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))
    given = [
        "--kubeconfig",
        str(path),
        "--prometheus",
        lightly_used_cluster.prometheus,
        "-n",
        lightly_used_cluster.namespace,
    ]
    assert run(["scan", "--all-contexts", "--top", "1", *given]) == 0
    out = capsys.readouterr().out
    assert "blue: 17 workloads" in out
    assert "green: 17 workloads" in out
    assert "All 2 clusters" in out
    assert run(["scan", "--context", "green", "-o", "json", *given]) == 0
    assert [found["context"] for found in json.loads(capsys.readouterr().out)["clusters"]] == ["green"]

    # A deleted context does not prevent a report of the others, and the report names it.
    gone = {"name": "gone", "cluster": {"server": "https://127.0.0.1:1"}}
    config["clusters"] = [gone, *config["clusters"]]
    config["contexts"] = [
        {"name": "red", "context": {**context["context"], "cluster": "gone"}},
        *config["contexts"],
    ]
    path.write_text(yaml.safe_dump(config))
    assert run(["scan", "--all-contexts", "--top", "1", *given]) == 2
    out, err = capsys.readouterr()
    assert "green: 17 workloads" in out
    assert "Not read: this cluster: red: cannot connect to https://127.0.0.1:1" in " ".join(out.split())
    assert err.startswith("trimtab: red: cannot connect to https://127.0.0.1:1")
    assert run(["scan", "--context", "red", *given]) == 2
    assert capsys.readouterr().out == ""


def may_list_pods(lightly_used_cluster: ScannedCluster, user: str) -> bool:
    asked = {"namespace": lightly_used_cluster.namespace, "verb": "list", "resource": "pods"}
    review = {"spec": {"user": user, "resourceAttributes": asked}}
    answer = lightly_used_cluster.cluster.call(
        "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review
    )
    return bool(answer["status"]["allowed"])


def test_scan_shows_readable_namespaces_and_names_forbidden_ones(
    lightly_used_cluster: ScannedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    user = f"--user=reader-of-{lightly_used_cluster.namespace}"
    for arguments in (
        ("create", "clusterrole", lightly_used_cluster.namespace, "--verb=list", "--resource=namespaces"),
        (
            "create",
            "clusterrolebinding",
            lightly_used_cluster.namespace,
            f"--clusterrole={lightly_used_cluster.namespace}",
            user,
        ),
        ("create", "rolebinding", "reader", "--clusterrole=view", user, "-n", lightly_used_cluster.namespace),
    ):
        lightly_used_cluster.cluster.kubectl(*arguments)
    wait_for(
        lambda: may_list_pods(lightly_used_cluster, f"reader-of-{lightly_used_cluster.namespace}"),
        what="the role to take effect",
    )
    kubeconfig = edited_config(
        lightly_used_cluster.cluster,
        tmp_path / "reader",
        **{"as": f"reader-of-{lightly_used_cluster.namespace}"},
    )
    asked = [
        "scan",
        "-o",
        "json",
        "--kubeconfig",
        kubeconfig,
        "--prometheus",
        lightly_used_cluster.prometheus,
    ]
    assert run(asked) == 0
    (found,) = json.loads(capsys.readouterr().out)["clusters"]
    assert {each["namespace"] for each in found["workloads"]} == {lightly_used_cluster.namespace}
    assert "kube-system" in found["forbiddenNamespaces"]
    assert "nodes" in found["errors"]
    assert run([*asked[:1], *asked[3:]]) == 0
    assert "Not scanned, because access is forbidden: namespaces" in capsys.readouterr().out
    assert run([*asked, "-l", "tier=front"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["clusters"]
    assert {each["name"] for each in found["workloads"]} >= {"web", "web-api"}
