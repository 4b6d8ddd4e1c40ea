"""What the agent knows, in one file, so that a restart forgets nothing: its series, and facts that others ask to keep.

The file is replaced as a whole, so a reader or a crash meets the old or the new and never a half. It has a bounded size,
because what it holds has. It is written series by series: all at once would double the agent's memory. A file that
cannot be read costs the past and nothing else: the agent starts without it.
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
"""Of one record: the facts are by far the largest."""

_FACTS = msgspec.msgpack.Decoder(dict[str, bytes])
_SERIES = msgspec.msgpack.Decoder(tuple[str, str, float, int, bytes])


class SeriesSnapshot:
    """One file. `facts` are small, by name, in whatever form their owner likes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def save(self, series: SeriesStore, facts: Mapping[str, bytes]) -> int:
        """Replace the file; how many bytes it has."""
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
        """Fill the series with what is not too old, and give the facts."""
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
            log.warning("snapshot.ignored", path=str(self._path), reason=str(error))
            return {}
        return facts


def _write_record(file: BinaryIO, record: bytes) -> None:
    file.write(_LENGTH.pack(len(record)))
    file.write(record)


def _read_records(file: BinaryIO) -> Iterator[bytes]:
    if file.read(len(_FORMAT)) != _FORMAT:
        raise ValueError("is none of ours, or of another version")
    while prefix := file.read(_LENGTH.size):
        if len(prefix) != _LENGTH.size:
            raise ValueError("is cut off")
        [length] = _LENGTH.unpack(prefix)
        if length > _MAX_BYTES:
            raise ValueError("has a record that we never write")
        record = file.read(length)
        if len(record) != length:
            raise ValueError("is cut off")
        yield record
