"""`scan --strategy krr` beside what Robusta's KRR recommended for the same fleet, on a real Prometheus and API server."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from harness import UnavailableError
from harness.cluster.cluster import Cluster
from harness.peers import krr
from harness.peers.prometheus import PrometheusServer, import_openmetrics
from harness.recordings import Recording, is_recording
from trimtab.api.quantity import Quantity
from trimtab.cli import run

RECORDING = Path(__file__).parent / "recordings" / "krr.json.xz"
QUESTION = "krr simple"
TOLERANCE = 0.05

Requests = dict[str, dict[str, float | None]]


class RunningFleet(NamedTuple):
    kubeconfig: Path
    prometheus: str


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningFleet]:
    """A cluster of its own: without controllers, which would replace pods whose node is only a name."""
    folder, made = tmp_path_factory.mktemp("krr"), krr.KrrFleet()
    text = folder / "samples.txt"
    made.write_openmetrics(text, end=time.time() // krr.GRID * krr.GRID)
    try:
        import_openmetrics(text, folder / "data", block="24h")
    except UnavailableError as why:
        pytest.skip(str(why))
    text.unlink()
    flags = ["--storage.tsdb.retention.time=100y"]
    with (
        Cluster.start(folder / "cluster") as cluster,
        PrometheusServer(folder, settings={"scrape_configs": []}, flags=flags) as server,
    ):
        cluster.stop_controllers()
        krr.populate(cluster, made)
        yield RunningFleet(cluster.kubeconfig, server.url)


@pytest.fixture(scope="module")
def theirs(fleet: RunningFleet) -> Requests:
    """Return what KRR recommends; it is asked again while recordings are made, where it is installed."""
    with Recording(RECORDING) as recording:
        if is_recording():
            if not (program := krr.find_program()):
                pytest.skip(f"{krr.PROGRAM} does not name the command of KRR")
            found = krr.ask(
                program,
                kubeconfig=fleet.kubeconfig,
                prometheus=fleet.prometheus,
                options=["-n", krr.NAMESPACE],
            )
            recording.keep(QUESTION, found)
        answer: Requests = recording.find(QUESTION)
        return answer


def scan(fleet: RunningFleet, capsys: pytest.CaptureFixture[str]) -> Requests:
    """Return what the strategy asks for, before guards; None where it leaves a container alone."""
    where = ["--kubeconfig", str(fleet.kubeconfig), "--prometheus", fleet.prometheus, "-n", krr.NAMESPACE]
    assert run(["scan", *where, "--strategy", "krr", "--output", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["clusters"]
    return {
        f"{workload['kind']} {workload['name']} {container['name']}": _read_targets(container)
        for workload in found["workloads"]
        for container in workload["containers"]
    }


def _read_targets(container: dict[str, Any]) -> dict[str, float | None]:
    targets: dict[str, float | None] = {"cpu": None, "memory": None}
    for factor in container["explanation"]:
        resource, _, name = factor["name"].partition(" ")
        if name == "strategy" and " -> " in factor["detail"]:
            amount = factor["detail"].partition(" -> ")[2].partition(":")[0]
            size = Quantity.parse(amount)
            targets[resource] = size.cores if resource == "cpu" else float(size.bytes)
    return targets


def test_scan_recommends_what_krr_recommends(
    fleet: RunningFleet, theirs: Requests, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = scan(fleet, capsys)
    nothing = {"cpu": None, "memory": None}
    compared = {
        f"{name} {resource}": (ours.get(name, nothing)[resource], amount)
        for name, requests in theirs.items()
        for resource, amount in requests.items()
    }
    assert {name.split()[0] for name in theirs} == {
        "Deployment",
        "StatefulSet",
        "DaemonSet",
        "CronJob",
        "Job",
    }
    differing = {
        name: pair
        for name, pair in compared.items()
        if (pair[0] is None) != (pair[1] is None)
        or (pair[0] and pair[1] and abs(pair[0] / pair[1] - 1) > TOLERANCE)
    }
    for resource in ("cpu", "memory"):
        unlike = [name for name in differing if name.endswith(resource)]
        assert len(unlike) <= 0.05 * len(theirs), {name: differing[name] for name in unlike}
