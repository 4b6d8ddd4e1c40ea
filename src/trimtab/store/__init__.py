"""Durable data: learned state, effects, planner events, history; in SQLite by default, in PostgreSQL when shared."""

from typing import TYPE_CHECKING

from trimtab.lazy import lazy_exports

if TYPE_CHECKING:
    from trimtab.store.errors import (
        AccessError,
        AddressError,
        ArchiveError,
        BusyError,
        DamagedError,
        DamagedStateError,
        FullError,
        NewerSchemaError,
        RecordError,
        StoreError,
        UnavailableError,
    )
    from trimtab.store.history import HistoryRecord, HistoryRepository
    from trimtab.store.planner_records import Effect, EffectRepository, PlannerEvent, PlannerEventRepository
    from trimtab.store.retention import PruneResult, Retention, RetentionLimit
    from trimtab.store.states import StateKey, StateRepository, StateSummary, StoredState
    from trimtab.store.store import Store

__all__ = [
    "AccessError",
    "AddressError",
    "ArchiveError",
    "BusyError",
    "DamagedError",
    "DamagedStateError",
    "Effect",
    "EffectRepository",
    "FullError",
    "HistoryRecord",
    "HistoryRepository",
    "NewerSchemaError",
    "PlannerEvent",
    "PlannerEventRepository",
    "PruneResult",
    "RecordError",
    "Retention",
    "RetentionLimit",
    "StateKey",
    "StateRepository",
    "StateSummary",
    "Store",
    "StoreError",
    "StoredState",
    "UnavailableError",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "AccessError": "errors",
        "AddressError": "errors",
        "ArchiveError": "errors",
        "BusyError": "errors",
        "DamagedError": "errors",
        "DamagedStateError": "errors",
        "Effect": "planner_records",
        "EffectRepository": "planner_records",
        "FullError": "errors",
        "HistoryRecord": "history",
        "HistoryRepository": "history",
        "NewerSchemaError": "errors",
        "PlannerEvent": "planner_records",
        "PlannerEventRepository": "planner_records",
        "PruneResult": "retention",
        "RecordError": "errors",
        "Retention": "retention",
        "RetentionLimit": "retention",
        "StateKey": "states",
        "StateRepository": "states",
        "StateSummary": "states",
        "Store": "store",
        "StoreError": "errors",
        "StoredState": "states",
        "UnavailableError": "errors",
    },
)
