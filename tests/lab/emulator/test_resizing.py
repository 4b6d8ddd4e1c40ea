"""`trimtab stress` on the real node: pods follow their workload, and the strategy under test makes them smaller in place."""

import json
from pathlib import Path

import numpy as np
import pytest

from harness.cluster import Cluster
from trimtab.cli import run
from trimtab.lab.workloads import Folder, Workload

MIB = 2.0**20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A peak that comes long after the run is over, so that pods begin far too large."""
    cpu, memory = np.full((1, 100), 0.05), np.full((1, 100), 24 * MIB)
    cpu[0, -1], memory[0, -1] = 0.4, 120 * MIB
    Folder(tmp_path).save(Workload(type="step", step=300.0, cpu=cpu, memory=memory), id="late")
    return tmp_path


def test_a_pod_that_asks_for_too_much_is_made_smaller_without_a_restart(
    node_cluster: Cluster, namespace: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = (
        *("--namespace", namespace, "--folder", str(folder), "--kubeconfig", str(node_cluster.kubeconfig)),
        *("--strategy", "percentile", "--setting", "min_samples=2", "--update", "15m"),
        *("--period", "2s", "--duration", "14s", "--cpu-limit", "2", "--memory-limit", "1.5"),
        *("--source-setting", "reach=direct", "--source-setting", "address=Hostname", "--output", "json"),
    )
    assert run(["stress", "late", *options]) == 0
    told = json.loads(capsys.readouterr().out)
    requests = [entry["cpu_request"] for entry in told["periods"]]
    assert len(requests) == 7
    assert requests[0] == 0.4
    assert requests[-1] < 0.2
    assert told["periods"][-1]["memory_request"] < told["periods"][0]["memory_request"]
    assert told["summary"]["resizes"] >= 1
    assert told["summary"]["ooms"] == 0
    assert told["summary"]["unheard"] == 0
    assert told["refusals"] == []
    deployments = node_cluster.call("GET", f"/apis/apps/v1/namespaces/{namespace}/deployments")
    assert deployments["items"] == []
