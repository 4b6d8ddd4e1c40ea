"""`trimtab stress`: refused clearly, and gone without a trace when it is interrupted."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cluster.cluster import Cluster
from harness.process import wait_for
from trimtab.errors import TrimtabError
from trimtab.kube.auth import load_connection
from trimtab.kube.rest.client import Client
from trimtab.lab.emulator import EmulationConfig, LoadProfile, run_stress
from trimtab.lab.workloads import WorkloadLibrary, generate


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = generate("step", count=2, duration=3600.0, step=300.0, cores_high=0.2)
    WorkloadLibrary(tmp_path).save(made, id="steps")
    return tmp_path


def _made(cluster: Cluster, namespace: str) -> int:
    paths = (f"/apis/apps/v1/namespaces/{namespace}/deployments", f"/api/v1/namespaces/{namespace}/services")
    return sum(len(cluster.call("GET", path)["items"]) for path in paths)


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_emulate_command_cleans_up_when_interrupted(
    cluster: Cluster, namespace: str, folder: Path, end: signal.Signals
) -> None:
    """In this cluster no pod ever starts, so it is interrupted while it waits for them."""
    command = f"import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); from trimtab.cli import run; sys.exit(run(['stress', 'steps', '--pods=2', '--namespace={namespace}', '--folder={folder}', '--kubeconfig={cluster.kubeconfig}']))"
    with subprocess.Popen([sys.executable, "-c", command], stderr=subprocess.PIPE, text=True) as running:
        wait_for(lambda: _made(cluster, namespace) == 4, what="two Deployments and two Services")
        running.send_signal(end)
        _, err = running.communicate(timeout=120)
    assert (running.returncode, err) == (130, "")
    assert _made(cluster, namespace) == 0
    pods = cluster.call("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
    assert pods == []


async def test_emulator_reports_and_deletes_pods_that_do_not_start(
    cluster: Cluster, namespace: str, folder: Path
) -> None:
    course = LoadProfile.from_workload(WorkloadLibrary(folder).load("steps"))
    async with Client(load_connection(kubeconfig=cluster.kubeconfig)) as client:
        with pytest.raises(TrimtabError, match=r"stress pod lonely: not ready after 2 s: .*; see `kubectl"):
            await run_stress(
                client, {"lonely": course}, EmulationConfig(namespace=namespace, start_timeout=2.0)
            )
    assert _made(cluster, namespace) == 0
