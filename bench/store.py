"""The store on SQLite beside the least that Python can do: sqlite3 itself, in one run on one disk.

    .venv/bin/python bench/store.py

Each side writes the same history rows (same columns, indexes and pragmas) in one transaction, and the same learned
state as one blob, and reads them back. sqlite3 is given rows that are ready to be written; the store makes them
from records, on an event loop that others can use meanwhile. A ratio of 1 would be a store that costs nothing.
Measured is CPU time, which does not depend on what else the machine does.
"""

import asyncio
import os
import sqlite3
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from trimtab.store import HistoryRecord, StateKey, Store
from trimtab.store.database import to_row
from trimtab.store.tables import history, states

KEY = StateKey("bench", "trimtab", "0")


def entries(rows: int) -> list[HistoryRecord]:
    return [
        HistoryRecord(
            timestamp=float(n // 1000),
            cluster="prod",
            namespace=f"team-{n % 50}",
            kind="Deployment",
            name=f"service-{n % 5000}",
            container="app",
            what="applied",
            before={"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {}},
            after={"requests": {"cpu": "150m", "memory": "300Mi"}, "limits": {}},
            who="trimtab-operator",
            why="p95 of a week is 130m, margin 15 %",
        )
        for n in range(rows)
    ]


def to_values(entry: HistoryRecord) -> tuple[object, ...]:
    values = to_row(entry).values()
    return tuple(msgspec.json.encode(v).decode() if isinstance(v, dict) else v for v in values)


def run_sqlite(folder: Path, rows: list[HistoryRecord], blob: bytes) -> dict[str, float]:
    """Return the CPU seconds of each operation by sqlite3 alone."""
    with closing(sqlite3.connect(folder / "plain.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        for table in (history, states):
            connection.execute(str(CreateTable(table).compile(dialect=sqlite.dialect())))
            for index in table.indexes:
                connection.execute(str(CreateIndex(index).compile(dialect=sqlite.dialect())))
        columns = list(to_row(rows[0]))
        insert = f"INSERT INTO {history.name} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
        prepared = [to_values(entry) for entry in rows]

        def append() -> None:
            connection.execute("BEGIN")
            connection.executemany(insert, prepared)
            connection.execute("COMMIT")

        def save() -> None:
            connection.execute(f"INSERT INTO {states.name} VALUES (1, '', '', '', 1, 0, '', ?)", (blob,))

        def load() -> None:
            connection.execute(f"SELECT data FROM {states.name}").fetchall()

        def find() -> None:
            connection.execute(f"SELECT * FROM {history.name} ORDER BY timestamp DESC, id DESC").fetchall()

        return {operation.__name__: seconds(operation) for operation in (append, find, save, load)}


def seconds(operation: Callable[[], object]) -> float:
    begun = time.process_time()
    operation()
    return time.process_time() - begun


async def async_seconds(operation: Awaitable[object]) -> float:
    begun = time.process_time()
    await operation
    return time.process_time() - begun


async def run_store(folder: Path, rows: list[HistoryRecord], blob: bytes) -> dict[str, float]:
    async with Store.open(folder / "store.db") as store:
        return {
            "append": await async_seconds(store.history.append(rows)),
            "find": await async_seconds(store.history.find(limit=len(rows))),
            "save": await async_seconds(store.states.save(KEY, blob, timestamp=0)),
            "load": await async_seconds(store.states.load(KEY)),
        }


def main() -> None:
    parser = ArgumentParser(description="The store beside sqlite3 itself")
    parser.add_argument("--rows", type=int, default=50_000, help="history rows in one transaction")
    parser.add_argument("--megabytes", type=int, default=32, help="size of a learned state")
    options = parser.parse_args()
    rows, blob = entries(options.rows), os.urandom(options.megabytes << 20)

    with tempfile.TemporaryDirectory() as folder:
        plain = run_sqlite(Path(folder), rows, blob)
        ours = asyncio.run(run_store(Path(folder), rows, blob))

    table = Table("operation", "unit", "sqlite3", "store", "times slower", title=f"{options.rows:,} rows")
    amounts = {
        "append": ("history rows written a CPU second", options.rows),
        "find": ("history rows read a CPU second", options.rows),
        "save": ("MiB of state saved a CPU second", options.megabytes),
        "load": ("MiB of state loaded a CPU second", options.megabytes),
    }
    for operation, (unit, amount) in amounts.items():
        rates = [f"{amount / side[operation]:,.0f}" for side in (plain, ours)]
        table.add_row(operation, unit, *rates, f"{ours[operation] / plain[operation]:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
