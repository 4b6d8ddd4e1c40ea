"""The example of a stress test, on the real node: the first hours of its day, in seconds."""

import runpy
import sys
from pathlib import Path

import pytest

from harness.cluster import Cluster

SCRIPT = Path(__file__).parents[3] / "examples" / "stress_test.py"


def test_the_example_leads_a_pod_through_hours_and_takes_it_away(
    node_cluster: Cluster,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(node_cluster.kubeconfig))
    brief = ("--hours", "3", "--minutes", "0.1")
    direct = ("--source-setting", "reach=direct", "--source-setting", "address=Hostname")
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), namespace, *brief, *direct])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    told = capsys.readouterr().out
    assert [line.split()[:2] for line in told.splitlines() if " asked " in line] == [
        [f"{half / 2}", "h"] for half in range(6)
    ]
    (periods,) = [line.split() for line in told.splitlines() if line.startswith("periods")]
    assert periods == ["periods", "6"]
    deployments = node_cluster.call("GET", f"/apis/apps/v1/namespaces/{namespace}/deployments")
    assert deployments["items"] == []
