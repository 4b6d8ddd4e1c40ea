"""The records of one resource in memory, with indexes and change handlers.

Records are stored by namespace and then by name, so the namespace is an index at no cost. A cache applies the events
of a watch and guarantees two things to its handlers: an older version never follows a newer one (unless a full list
contains it: the server's data may have been restored from a backup), and an object that was replaced under its name
unnoticed is reported as deleted, then as added.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Generic, Protocol, TypeVar

import structlog

from trimtab.kube.cache.projection import R, Versioned

log = structlog.get_logger(__name__)

R_contra = TypeVar("R_contra", contravariant=True)

Index = Callable[[R], Hashable]
"""The function that returns a record's index value; None leaves the record out of the index."""


class Handler(Protocol[R_contra]):
    """Called for each change: (None, new) added, (old, new) changed, (old, None) deleted.

    It runs inside the informer's loop, so it must add a key to a work queue and return at once.
    """

    def __call__(self, old: R_contra | None, new: R_contra | None, /) -> None: ...


class Cache(Generic[R]):
    """All records of one resource that the server has, according to the watch."""

    def __init__(self, indexes: Mapping[str, Index[R]] | None = None) -> None:
        self._records: dict[str, dict[str, R]] = {}
        self._size = 0
        self._index_functions = dict(indexes or {})
        self._indexes: dict[str, dict[Hashable, dict[R, None]]] = {name: {} for name in self._index_functions}
        self._handlers: list[Handler[R]] = []

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[R]:
        for records in self._records.values():
            yield from records.values()

    def get(self, name: str, namespace: str = "") -> R | None:
        return self._records.get(namespace, {}).get(name)

    def in_namespace(self, namespace: str) -> list[R]:
        return list(self._records.get(namespace, {}).values())

    def find(self, index: str, value: Hashable) -> list[R]:
        """Return the records that the named index has for a value."""
        return list(self._indexes[index].get(value, ()))

    def read_index(self, index: str) -> Mapping[Hashable, Collection[R]]:
        """Return the named index itself, which stays current: for walks that look up many values in many caches."""
        return self._indexes[index]

    def on_change(self, handler: Handler[R]) -> None:
        """Call the handler for every change from now on, and for each present record as added."""
        self._handlers.append(handler)
        for record in list(self):
            handler(None, record)

    def put(self, record: R, *, listed: bool = False) -> None:
        """Add or replace a record; an older version than the present one is ignored, unless a full list contains
        it.
        """
        old = self.get(record.name, record.namespace)
        if old is not None and record.uid != old.uid and (listed or record.version >= old.version):
            self._drop(old)
            old = None
        if old is None:
            self._size += 1
        elif record.version and (
            record.version == old.version or (record.version < old.version and not listed)
        ):
            return  # a record without a numeric version cannot be compared, so it is always applied
        self._records.setdefault(record.namespace, {})[record.name] = record
        self._reindex(old, record)
        self._notify(old, record)

    def update(self, record: R) -> None:
        """Replace a record by a newer one that a write returned, which the watch has yet to deliver.

        An object that is gone, or that was recreated under its name, stays as it is: the response of a write may arrive
        after the events that followed it.
        """
        old = self.get(record.name, record.namespace)
        if old is not None and old.uid == record.uid:
            self.put(record)

    def remove(self, gone: Versioned) -> None:
        """Remove an object that the server has deleted, unless a newer one has its name."""
        old = self.get(gone.name, gone.namespace)
        if old is not None and old.version <= gone.version:
            self._drop(old)

    def select(self, namespace: str | None) -> list[R]:
        """Return the records of a namespace, or all."""
        return list(self) if namespace is None else self.in_namespace(namespace)

    def keep_only(self, uids: AbstractSet[str], *, namespace: str | None = None) -> None:
        """Remove the records that a full list, of one namespace or of all, does not contain."""
        for record in [record for record in self.select(namespace) if record.uid not in uids]:
            self._drop(record)

    def _drop(self, record: R) -> None:
        records = self._records[record.namespace]
        del records[record.name]
        if not records:
            del self._records[record.namespace]
        self._size -= 1
        self._reindex(record, None)
        self._notify(record, None)

    def _notify(self, old: R | None, new: R | None) -> None:
        for handler in self._handlers:
            # An error in one handler must not end the informer, on which all others depend.
            try:
                handler(old, new)
            except Exception:
                log.exception("cache.handler_failed", handler=repr(handler))

    def _reindex(self, old: R | None, new: R | None) -> None:
        for name, function in self._index_functions.items():
            index = self._indexes[name]
            if old is not None and (value := function(old)) is not None:
                bucket = index[value]
                del bucket[old]
                if not bucket:
                    del index[value]
            if new is not None and (value := function(new)) is not None:
                bucket_or_none = index.get(value)
                if bucket_or_none is None:
                    index[value] = {new: None}
                else:
                    bucket_or_none[new] = None
