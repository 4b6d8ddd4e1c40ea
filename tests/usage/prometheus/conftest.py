"""Servers that answer as real ones did."""

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.peers.recorded_prometheus import RecordedServers
from harness.recordings import Recording
from usage.recording import T0

NOW = T0 + 365 * 86400.0
"""The time at which the servers were asked: a recorded question must not depend on the clock."""
RECORDINGS = Path(__file__).with_name("recordings")


@pytest.fixture(scope="module", autouse=True)
def clock() -> Iterator[None]:
    """Stop the clock of the source."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "trimtab.usage.prometheus.source.time",
            SimpleNamespace(time=lambda: NOW, monotonic=time.monotonic),
        )
        yield


@pytest.fixture(scope="module")
def servers(request: pytest.FixtureRequest) -> Iterator[RecordedServers]:
    """Return the recorded servers of this module of tests."""
    with Recording(RECORDINGS / f"{request.path.stem}.json.xz") as recording:
        yield RecordedServers(recording)
