"""Parquet, a batch of rows at a time. pyarrow is an extra, and loaded only when such a file is met."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from trimtab.errors import TrimtabError
from trimtab.usage.formats.file_parts import FilePart
from trimtab.usage.formats.format import BLOCK_ROWS
from trimtab.usage.trace import Floats


def read_column_names(part: FilePart, stream: IO[bytes]) -> list[str]:
    """The names of its columns."""
    with _open_parquet(part, stream) as file:
        return list(file.schema_arrow.names)


def read_batches(
    part: FilePart, stream: IO[bytes], *, choose_columns: Callable[[Sequence[str]], list[str]]
) -> Iterator[Any]:
    """Record batches with the columns that `wanted` picks from those that there are."""
    with _open_parquet(part, stream) as file:
        yield from file.iter_batches(batch_size=BLOCK_ROWS, columns=choose_columns(file.schema_arrow.names))


def read_names(part: FilePart, column: Any) -> tuple[list[str], npt.NDArray[np.int64]]:
    """The values in the dictionary of a column, and which each row has."""
    import pyarrow as pa

    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    if encoded.null_count:
        raise TrimtabError(f"{part}: a row has no name")
    return list(map(str, encoded.dictionary.to_pylist())), encoded.indices.to_numpy().astype(np.int64)


def read_numbers(part: FilePart, name: str, column: Any) -> Floats:
    """Null is NaN, and a time of the calendar its seconds since 1970."""
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        of_a_second = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[column.type.unit]
        return read_numbers(part, name, column.cast(pa.int64())) / of_a_second
    try:
        return np.asarray(column.to_numpy(zero_copy_only=False), np.float64)
    except (TypeError, ValueError):
        raise TrimtabError(f"{part}: the column {name} has to hold numbers; it is of {column.type}") from None


@contextmanager
def _open_parquet(part: FilePart, stream: IO[bytes]) -> Iterator[Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise TrimtabError(f"{part}: reading parquet needs pyarrow: pip install 'trimtab[parquet]'") from None
    with ExitStack() as stack:
        if stream.__class__.__module__ in {"gzip", "tarfile", "zipfile"}:
            # Parquet is read from its end: what is compressed as a whole is laid out on the disk first.
            laid_out = stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(stream, laid_out)
            stream = laid_out
        try:
            yield stack.enter_context(pq.ParquetFile(stream))
        except (pa.ArrowException, OSError) as error:
            raise TrimtabError(
                f"{part}: is not a parquet file that can be read: {str(error).splitlines()[0]}"
            ) from None
