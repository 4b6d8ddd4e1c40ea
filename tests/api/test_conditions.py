"""Tests of conditions and the times of their last transitions."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.api.meta import MAX_MESSAGE_LENGTH, Condition, build_condition, set_conditions

STATUSES = st.sampled_from([True, False, None])
ROUNDS = st.lists(st.dictionaries(st.sampled_from(["Ready", "Met", "Acting"]), STATUSES), max_size=8)


@given(rounds=ROUNDS)
@settings(max_examples=200)
def test_set_conditions_changes_the_time_exactly_when_the_status_changes(
    rounds: list[dict[str, bool | None]],
) -> None:
    before: list[dict[str, Any]] = []
    for number, wanted in enumerate(rounds):
        built = [
            build_condition(name, holds=holds, reason=f"Round{number}") for name, holds in wanted.items()
        ]
        now = set_conditions(built, before, now=60.0 * number, generation=number)
        known = {each["type"]: each for each in before}
        for condition in now:
            old = known.get(condition["type"], {})
            is_kept = old.get("lastTransitionTime") == condition["lastTransitionTime"]
            assert is_kept == (old.get("status") == condition["status"])
            assert condition["reason"] == f"Round{number}"
            Condition.model_validate(condition)
        before = now


def test_set_conditions_omits_the_generation_if_there_is_none() -> None:
    (found,) = set_conditions([build_condition("Ready", holds=True)], (), now=0.0)
    assert found == {"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:00:00Z"}


def test_build_condition_truncates_its_message() -> None:
    assert len(build_condition("Ready", holds=None, message="x" * 9999)["message"]) == MAX_MESSAGE_LENGTH
