"""The real VPA recommender: it answers as recorded, and reads our checkpoints."""

from typing import Any

from harness.builders.vpa_checkpoints import export_status
from harness.peers.vpa import GoVpa, RecordedVpa, Series
from harness.recordings import Recording
from sizing.strategies.test_vpa_checkpoint import fresh, observe_series, units
from sizing.strategies.vpa_series import CHECKPOINT_START, RECORDING, answers, days_of_usage


def test_vpa_recommender_answers_as_recorded(go_vpa: GoVpa) -> None:
    def ask(series: list[Series], *fields: str) -> list[dict[str, Any]]:
        return go_vpa.ask_for(fields, series)

    recorded = answers(RecordedVpa(Recording(RECORDING)).ask)
    for now, then in zip(answers(ask), recorded, strict=True):
        assert now == then


def test_vpa_recommender_reads_exported_checkpoint(go_vpa: GoVpa) -> None:
    sizer = observe_series(fresh(), days_of_usage(1))
    status = export_status(sizer, 1, now=CHECKPOINT_START + 100 * 86400)
    (theirs,) = go_vpa.ask([Series(events=[{"t": CHECKPOINT_START, "load": status, "ask": True}])])
    assert units(sizer) == [theirs["cpu"], theirs["memory"]]
