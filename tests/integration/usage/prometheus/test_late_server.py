"""A Prometheus whose newest samples are minutes or hours old, as behind a remote write that lags."""

import time
from pathlib import Path

import pytest

from harness import UnavailableError
from harness.peers.prometheus import Recorded
from trimtab.plural import format_time_span
from trimtab.usage.prometheus import Prometheus, PrometheusSettings
from trimtab.usage.source import UsageQuery
from usage.recording import MIB, SCRAPE, T0, MetricRecording, container_labels


@pytest.mark.parametrize("late", [12 * 60, 65 * 60, 5 * 3600])
async def test_check_says_by_how_much_samples_are_late(tmp_path: Path, late: float) -> None:
    """It said that the metric does not exist, although days of it are there."""
    now = time.time()
    last = int((now - late - T0) // SCRAPE)
    recording = MetricRecording()
    pod = container_labels("web-7c9f8d6b5-x2x2x")
    recording.container(pod, cores=0.5, memory=100 * MIB, scrapes=range(last - 480, last + 1))
    try:
        server = Recorded(tmp_path, recording.text)
    except UnavailableError as why:
        pytest.skip(str(why))
    with server as running:
        async with Prometheus(PrometheusSettings(url=running.url)) as source:
            health = await source.check()
            usage = await source.read(
                UsageQuery.last(86400, now=now, step=300, namespaces=(pod["namespace"],))
            )
    assert health.ok
    assert health.advice
    words = health.detail.rpartition(" late by ")[2]
    assert words in {
        format_time_span(late + minutes * 60 + part) for minutes in range(4) for part in range(-60, 60)
    }
    assert len(usage.containers) == 1
