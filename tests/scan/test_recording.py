"""Usage from a recording, as the source of a scan."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from trimtab.cli import run
from trimtab.errors import TrimtabError
from trimtab.scan.recording import RecordingSource, open_recording
from trimtab.usage.source import UsageQuery
from trimtab.usage.trace import Trace
from trimtab.usage.usage import PodContainer

START, MINUTE, HOUR = 1_790_000_100.0, 60.0, 3600.0
FILE = Path("usage.csv")


def recorded(
    step: float, *columns: list[float], names: tuple[str, ...] = ("shop/web-1/app",)
) -> RecordingSource:
    cpu = np.array(columns).T
    return RecordingSource(Trace(names=names, start=START, step=step, cpu=cpu, memory=cpu * 100), FILE)


async def test_longer_step_has_mean_cpu_and_highest_memory() -> None:
    source = recorded(MINUTE, [1.0, 2, 3, 4, 5, 6, 7, np.nan, 9, 10])
    found = await source.read(UsageQuery(start=START + 240, end=START + 841, step=300))
    assert found.containers == (PodContainer("shop", "web-1", "app"),)
    assert found.cpu[:, 0].tolist() == [3, 8, pytest.approx(np.nan, nan_ok=True)]
    assert found.memory[:2, 0].tolist() == [500, 1000]


async def test_sample_counts_for_the_whole_step_of_the_recording() -> None:
    source = recorded(15 * MINUTE, [1.0, 2])
    found = await source.read(UsageQuery(start=START - 300, end=START + 1501, step=300))
    assert found.cpu[1:, 0].tolist() == [1, 1, 1, 2, 2, 2]
    assert np.isnan(found.cpu[0, 0])


async def test_read_leaves_out_other_namespaces() -> None:
    source = recorded(MINUTE, [1.0], [2.0], names=("shop/web-1/app", "bank/db-0/db"))
    found = await source.read(UsageQuery(start=START, end=START + 1, step=60, namespaces=("bank",)))
    assert [name.pod for name in found.containers] == ["db-0"]
    assert found.cpu.tolist() == [[2.0]]


async def test_recording_is_read_with_its_end_as_now(tmp_path: Path) -> None:
    file = tmp_path / "usage.csv"
    rows = [f"shop/web-1/app,{START + 60 * n},0.5,1e8" for n in range(120)]
    file.write_text("\n".join(["series,t_seconds,cpu_cores,mem_bytes", *rows]))
    found, now = await open_recording(file)
    assert now == pytest.approx(START + 119 * 60, abs=60)
    assert found.has_history
    assert found.description.endswith("usage.csv: 1 container, 2 hours, a sample every 60 s")


@pytest.mark.parametrize("name", ["web", "shop/web", "shop//app", "a/b/c/d"])
def test_series_without_a_pod_are_rejected(name: str) -> None:
    with pytest.raises(TrimtabError, match="is not named NAMESPACE/POD/CONTAINER"):
        recorded(MINUTE, [1.0], names=(name,))


def test_recording_and_server_are_not_both_given(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        "{clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}], users: [{name: u, user: {token: t}}],"
        " contexts: [{name: x, context: {cluster: c, user: u}}], current-context: x}"
    )
    given = ["--kubeconfig", str(config), "--recording", "usage.csv", "--prometheus", "http://127.0.0.1:1"]
    assert run(["scan", *given]) == 2
    assert "--recording: it replaces --prometheus" in capsys.readouterr().err
