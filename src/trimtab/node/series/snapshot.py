"""Persist the agent's series, and the facts of other parts, in one file across restarts.

The file is replaced atomically, has a bounded size, and is written series by series to save memory. The agent
starts without an unreadable file.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import msgspec
import structlog

from trimtab.node.model import Metric
from trimtab.node.series.ring import Ring
from trimtab.node.series.store import SeriesStore

log = structlog.get_logger(__name__)

_FORMAT = b"trimtab series 1\n"
_LENGTH = struct.Struct("<I")
_MAX_BYTES = 4 << 20
"""The maximum bytes of a record; the facts are by far the largest."""

_FACTS = msgspec.msgpack.Decoder(dict[str, bytes])
_SERIES = msgspec.msgpack.Decoder(tuple[str, str, float, int, bytes])


class SeriesSnapshot:
    """A snapshot file; `facts` are small, opaque records by name."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def save(self, series: SeriesStore, facts: Mapping[str, bytes]) -> int:
        """Replace the file and return its size in bytes."""
        encode = msgspec.msgpack.Encoder().encode
        part = self._path.with_suffix(".part")
        with part.open("wb") as file:
            file.write(_FORMAT)
            _write_record(file, encode(dict(facts)))
            for subject, metric, ring in series.rings():
                _write_record(file, encode((subject, metric.value, *ring.to_state())))
            size = file.tell()
        os.replace(part, self._path)  # noqa: PTH105 - the one call that is said to be atomic
        return size

    def load(self, series: SeriesStore) -> dict[str, bytes]:
        """Fill the series with samples that are not too old, and return the facts."""
        try:
            with self._path.open("rb") as file:
                records = _read_records(file)
                facts = _FACTS.decode(next(records, b""))
                for record in records:
                    subject, metric, step, newest, values = _SERIES.decode(record)
                    ring = Ring.from_state(step, newest, values)
                    if not ring.is_idle(series.now):
                        series.restore(subject, Metric(metric), ring)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:  # msgspec's own are ValueErrors
            log.warning("series.snapshot_ignored", path=str(self._path), reason=str(error))
            return {}
        return facts


def _write_record(file: BinaryIO, record: bytes) -> None:
    file.write(_LENGTH.pack(len(record)))
    file.write(record)


def _read_records(file: BinaryIO) -> Iterator[bytes]:
    if file.read(len(_FORMAT)) != _FORMAT:
        raise ValueError("is not a snapshot of this version")
    while prefix := file.read(_LENGTH.size):
        if len(prefix) != _LENGTH.size:
            raise ValueError("is truncated")
        [length] = _LENGTH.unpack(prefix)
        if length > _MAX_BYTES:
            raise ValueError("has an oversized record")
        record = file.read(length)
        if len(record) != length:
            raise ValueError("is truncated")
        yield record
