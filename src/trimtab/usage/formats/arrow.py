"""Read Parquet files in batches of rows. pyarrow is an extra and is imported only when needed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from trimtab.errors import TrimtabError
from trimtab.lazy import require_extra
from trimtab.usage.formats.file_parts import FilePart
from trimtab.usage.formats.format import BLOCK_ROWS
from trimtab.usage.trace import Floats


def read_column_names(part: FilePart, stream: IO[bytes]) -> list[str]:
    """Return the names of the columns."""
    with _open_parquet(part, stream) as file:
        return list(file.schema_arrow.names)


def read_batches(
    part: FilePart, stream: IO[bytes], *, choose_columns: Callable[[Sequence[str]], list[str]]
) -> Iterator[Any]:
    """Yield record batches with the columns that `choose_columns` selects."""
    with _open_parquet(part, stream) as file:
        yield from file.iter_batches(batch_size=BLOCK_ROWS, columns=choose_columns(file.schema_arrow.names))


def read_names(part: FilePart, column: Any) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Return the distinct values of a column and the index of each row's value."""
    import pyarrow as pa

    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    if encoded.null_count:
        raise TrimtabError(f"{part}: a row has no series name")
    return list(map(str, encoded.dictionary.to_pylist())), encoded.indices.to_numpy().astype(np.int64)


def read_numbers(part: FilePart, name: str, column: Any) -> Floats:
    """Return the numbers of a column: null becomes NaN, a timestamp its seconds since 1970."""
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        units_per_second = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[column.type.unit]
        return read_numbers(part, name, column.cast(pa.int64())) / units_per_second
    try:
        return np.asarray(column.to_numpy(zero_copy_only=False), np.float64)
    except (TypeError, ValueError):
        raise TrimtabError(
            f"{part}: column {name} must contain numbers, but has type {column.type}"
        ) from None


@contextmanager
def _open_parquet(part: FilePart, stream: IO[bytes]) -> Iterator[Any]:
    with require_extra("parquet", f"{part}"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    with ExitStack() as stack:
        if stream.__class__.__module__ in {"gzip", "tarfile", "zipfile"}:
            # Parquet is read from its end, so a compressed stream is first unpacked into a temporary file.
            unpacked = stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(stream, unpacked)
            stream = unpacked
        try:
            yield stack.enter_context(pq.ParquetFile(stream))
        except (pa.ArrowException, OSError) as error:
            raise TrimtabError(
                f"{part}: the parquet file cannot be read: {str(error).splitlines()[0]}"
            ) from None
