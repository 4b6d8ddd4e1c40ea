"""Tests of tests/store once more on PostgreSQL: those of what SQL dialects differ in.

These are types (bytes, floats, NULL, text that a server refuses), the order of rows that are equal, writes that update,
transactions and locks, and DDL. What our own code does before or after SQL is tested on a file only.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from types import FunctionType

import pytest

pytestmark = pytest.mark.postgres

Cases = dict[str, Sequence[object]]

CONTRACT: dict[str, dict[str, Cases]] = {
    "test_archive": {
        "test_archive_imports_what_it_exported": {},
        "test_archive_import_adds_to_existing_rows": {},
        "test_archive_import_keeps_the_later_of_two_states": {},
        "test_archive_exports_and_imports_more_than_a_page": {},
    },
    "test_concurrent_writers": {
        "test_store_accepts_concurrent_writers": {},
        "test_store_writer_does_not_block_readers": {},
        "test_store_reader_does_not_block_writers": {},
        "test_waiting_writers_leave_connections_to_readers": {},
        "test_store_serializes_two_transactions_that_read_before_they_write": {},
        "test_store_rolls_back_a_cancelled_task": {},
    },
    "test_planner_records": {
        "test_effect_reads_back_as_written": {},
        "test_effects_list_all_models_of_a_name_newest_first": {},
        "test_effects_are_found_by_cluster_or_in_all_clusters": {},
        "test_event_reads_back_as_written": {},
        "test_event_distinguishes_no_plan_from_an_empty_plan": {},
        "test_event_keeps_an_unknown_objective": {},
        "test_events_are_found_by_time_both_ends_included": {},
    },
    "test_history": {
        "test_history_entry_reads_back_with_a_number": {},
        "test_entries_are_found_by_several_words": {},
        "test_history_of_the_same_time_lists_the_last_written_first": {},
        "test_pages_hold_every_entry_once": {},
        "test_history_stores_a_batch_whole_or_not_at_all": {},
        "test_history_returns_none_for_an_impossible_number": {},
        "test_history_batch_accepts_bytes_that_are_no_text": {},
        "test_words_from_outside_cannot_break_a_batch": {},
        "test_history_stores_an_event_seen_by_two_replicas_once": {},
        "test_history_of_the_previous_schema_stays_readable_and_gets_keys": {},
    },
    "test_retention": {
        "test_retention_removes_old_rows_of_each_table": {},
        "test_retention_removes_more_than_one_batch": {},
        "test_prune_counts_the_rows_of_each_cluster_for_itself": {},
        "test_retention_matches_a_reference_implementation": {},
    },
    "test_schema": {
        "test_schema_migrations_create_the_declared_tables": {},
        "test_new_schema_is_what_the_migrations_make": {},
        "test_schema_keeps_all_rows_when_opened_again": {},
        "test_schema_is_created_once_by_many_openings": {},
        "test_schema_is_not_created_or_migrated_by_a_reader": {},
        "test_schema_migration_that_fails_changes_nothing": {},
        "test_schema_migration_assigns_effects_and_events_to_the_only_known_cluster": {
            "clusters, adopted": [(["prod"], "prod")]
        },
        "test_schema_of_the_first_version_with_a_dropped_part_is_migrated": {
            "dropped": ["TABLE trimtab_history", "INDEX trimtab_events_by_name"]
        },
        "test_schema_with_a_lost_version_is_recovered": {"lost": ["DROP TABLE trimtab_schema"]},
        "test_schema_with_unknown_columns_and_a_lost_version_is_rejected": {},
    },
    "test_states": {
        "test_state_reads_back_bit_for_bit": {},
        "test_state_save_replaces_the_former_and_counts_its_version": {},
        "test_state_may_have_tens_of_megabytes": {},
        "test_state_readers_see_the_old_or_the_new_whole": {},
    },
}
"""The tests, by their module, and the cases of those that need not run in all of theirs."""


@pytest.fixture
def address(postgres: str) -> str:
    return postgres


def _with_cases(test: Callable[..., object], cases: Cases) -> FunctionType:
    """Return the test with these cases in place of its own."""
    assert isinstance(test, FunctionType)
    copy = FunctionType(test.__code__, test.__globals__, test.__name__, test.__defaults__, test.__closure__)
    copy.__kwdefaults__ = test.__kwdefaults__
    copy.__dict__ |= test.__dict__
    own = [mark for mark in getattr(test, "pytestmark", []) if _parameters(mark) not in cases]
    assert len(own) + len(cases) == len(getattr(test, "pytestmark", [])), (
        f"{test}: its parameters have changed"
    )
    chosen = [pytest.mark.parametrize(names, values).mark for names, values in cases.items()]
    copy.pytestmark = [*own, *chosen]  # type: ignore[attr-defined]
    return copy


def _parameters(mark: pytest.Mark) -> str:
    names = mark.args[0] if mark.name == "parametrize" else ""
    return names if isinstance(names, str) else ", ".join(names)


for _module, _tests in CONTRACT.items():
    for _name, _cases in _tests.items():
        _test = getattr(import_module(f"store.{_module}"), _name)
        globals()[f"{_module}_{_name.removeprefix('test_')}"] = (
            _with_cases(_test, _cases) if _cases else _test
        )
