"""Durable memory: learned state, effects, planner events, history; SQLite by default, PostgreSQL when shared."""

from trimtab.store.effects import Effect, Effects
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
from trimtab.store.events import PlannerEvent, PlannerEvents
from trimtab.store.history import History, HistoryEntry
from trimtab.store.retention import Keep, Pruned, Retention
from trimtab.store.states import State, StateKey, StateNote, States
from trimtab.store.store import Store

__all__ = [
    "AccessError",
    "AddressError",
    "ArchiveError",
    "BusyError",
    "DamagedError",
    "DamagedStateError",
    "Effect",
    "Effects",
    "FullError",
    "History",
    "HistoryEntry",
    "Keep",
    "NewerSchemaError",
    "PlannerEvent",
    "PlannerEvents",
    "Pruned",
    "RecordError",
    "Retention",
    "State",
    "StateKey",
    "StateNote",
    "States",
    "Store",
    "StoreError",
    "UnavailableError",
]
