"""Real servers still answer as in the recordings that tests/usage/prometheus uses."""

from pathlib import Path

import pytest

from harness import UnavailableError
from harness.peers.recorded_prometheus import RecordedServers
from harness.recordings import Recording
from usage.prometheus.conftest import RECORDINGS


@pytest.mark.parametrize("file", sorted(RECORDINGS.iterdir()), ids=lambda file: file.name.partition(".")[0])
def test_servers_answer_as_recorded(file: Path) -> None:
    try:
        assert RecordedServers(Recording(file)).compare() > 0
    except UnavailableError as why:
        pytest.skip(str(why))
