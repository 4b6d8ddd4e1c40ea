"""Maintenance windows: open when they say, in the time zone that they say."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actuation.builders import NOW, desired_change, observation, pod, wait_reason, workload
from trimtab.actuation.actions import Wait
from trimtab.actuation.decide.maintenance_windows import next_opening, open_seconds
from trimtab.actuation.decide.transitions import next_actions
from trimtab.api.optimizationpolicy import MaintenanceWindow, Weekday

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str, zone: ZoneInfo = BERLIN) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=zone).timestamp())


NIGHT = MaintenanceWindow(
    days=(Weekday.FRI, Weekday.SAT), start="22:00", end="04:00", time_zone="Europe/Berlin"
)


@pytest.mark.parametrize(
    ("now", "opens"),
    [
        ("2026-11-13T21:59", "2026-11-13T22:00"),
        ("2026-11-13T22:00", "2026-11-13T22:00"),
        ("2026-11-14T03:59", "2026-11-14T03:59"),
        ("2026-11-14T04:00", "2026-11-14T22:00"),
        ("2026-11-15T03:30", "2026-11-15T03:30"),
        ("2026-11-15T12:00", "2026-11-20T22:00"),
    ],
)
def test_maintenance_window_over_midnight_opens_on_its_days(now: str, opens: str) -> None:
    assert next_opening([NIGHT], now=at(now)) == at(opens)


def test_maintenance_windows_are_open_if_there_are_none() -> None:
    assert next_opening([], now=NOW) == NOW


def test_maintenance_window_keeps_its_hours_at_daylight_saving_changes() -> None:
    early = MaintenanceWindow(start="06:00", end="07:00", time_zone="Europe/Berlin")
    assert next_opening([early], now=at("2026-03-28T08:00")) == at("2026-03-29T06:00")
    assert at("2026-03-29T06:00") - at("2026-03-28T06:00") == 23 * 3600


def test_maintenance_windows_count_open_time_once_where_they_overlap() -> None:
    early = MaintenanceWindow(start="06:00", end="07:00", time_zone="Europe/Berlin")
    later = MaintenanceWindow(start="06:30", end="07:30", time_zone="Europe/Berlin")
    since, now = at("2026-11-13T06:15"), at("2026-11-13T12:00")
    assert open_seconds([early, later], since=since, now=now) == 75 * 60
    assert open_seconds([early, later], since=since, now=at("2026-11-13T06:45")) == 30 * 60
    assert open_seconds([], since=since, now=now) == now - since


times = st.times().map(lambda time: time.strftime("%H:%M"))
windows = st.builds(
    MaintenanceWindow,
    days=st.sets(st.sampled_from(Weekday)).map(tuple),
    start=times,
    end=times,
    time_zone=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"]),
)
moments = st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1)).map(  # noqa: DTZ001 - made aware below
    lambda moment: int(moment.replace(tzinfo=UTC).timestamp())
)


@given(st.lists(windows, min_size=1, max_size=3), moments)
def test_maintenance_window_next_opening_is_open_and_within_a_week(
    choice: list[MaintenanceWindow], now: int
) -> None:
    opening = next_opening(choice, now=now)
    assert opening is not None
    assert now <= opening <= now + timedelta(days=8).total_seconds()
    assert next_opening(choice, now=opening) == opening


@pytest.mark.parametrize("name", ["Europe/Atlantis", "Europe//Berlin", "Europe/", "Europe"])
def test_maintenance_window_in_an_unknown_time_zone_never_opens_with_a_reason(name: str) -> None:
    nowhere = MaintenanceWindow(time_zone=name)
    assert next_opening([nowhere], now=NOW) is None
    assert "time zones" in wait_reason(next_actions(observation(desired_change(windows=(nowhere,)))))


def test_maintenance_window_delays_a_change_unless_memory_ran_out() -> None:
    now = at("2026-11-15T12:00")
    fresh = [pod(created=now - 86_400)]
    (wait,) = next_actions(observation(desired_change(windows=(NIGHT,)), pods=fresh, now=now))
    opens = "the next one opens at 2026-11-20T21:00:00Z"
    why_closed = f"no maintenance window (updateStrategy.windows) is open; {opens}"
    assert wait == Wait(at("2026-11-20T22:00"), why_closed)
    urgent = observation(desired_change(windows=(NIGHT,), is_urgent=True), pods=fresh, now=now, on=workload())
    assert not isinstance(next_actions(urgent)[0], Wait)
