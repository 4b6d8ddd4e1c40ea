"""Durable data: learned state, effects, planner events, history; in SQLite by default, in PostgreSQL when shared."""

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
