"""The recorded answers of the VPA recommender."""

from collections.abc import Iterator

import pytest

from harness.peers.vpa import GoVpa, RecordedVpa
from harness.recordings import Recording, is_recording
from sizing.strategies.vpa_series import RECORDING


@pytest.fixture(scope="session")
def recorded_vpa() -> Iterator[RecordedVpa]:
    """Return what answers as the Kubernetes VPA recommender did: `recorded_vpa.ask([Series(…)], "cpu")`."""
    with Recording(RECORDING) as recording:
        yield RecordedVpa(recording, GoVpa() if is_recording() else None)
