"""The hold annotation: encoding, decoding and the desired change that it leads to."""

import pytest

from actuation.builders import desired_change
from actuation.world import resources
from trimtab.actuation.hold import HOLD_ANNOTATION, Hold, read_hold
from trimtab.api.duration import Duration
from trimtab.api.optimizationpolicy import MaintenanceWindow


def test_hold_reads_back_its_owner_and_size() -> None:
    hold = Hold(who="ann", why="the sale", at=7, sizes={"web": resources(100, 64)})
    assert read_hold([(HOLD_ANNOTATION, hold.encode())]) == hold


@pytest.mark.parametrize("text", ["until the sale is over", "", "{", '{"who": 1}', '{"sizes": {"web": 3}}'])
def test_hold_accepts_any_value_written_by_hand(text: str) -> None:
    found = read_hold([(HOLD_ANNOTATION, text)])
    assert found
    assert found.is_manual
    assert found.why == text
    assert not found.sizes


def test_hold_needs_its_annotation() -> None:
    assert read_hold([("trimtab.io/recommendation", "{}")]) is None


def test_hold_with_a_size_waits_for_no_window_or_interval() -> None:
    usual = desired_change(
        {"web": resources(100, 64)},
        min_interval=Duration.parse("1h"),
        windows=(MaintenanceWindow(start="22:00", end="23:00"),),
    )
    asked = Hold(who="ann", why="", sizes={"web": resources(300, 64)}).apply_to(usual)
    assert asked.sizes == {"web": resources(300, 64)}
    assert asked.strategy.windows == ()
    assert asked.strategy.min_interval.seconds == 0
    assert asked.strategy.canary == usual.strategy.canary
