"""A workload as a recording that `trimtab backtest` reads, and anything else that reads tables: CSV or parquet."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from trimtab.atomic_write import replace_atomically
from trimtab.errors import TrimtabError
from trimtab.lab.workloads.workload import GeneratedWorkload
from trimtab.lazy import require_extra
from trimtab.printable import escape_cells
from trimtab.usage.trace import Floats

HEADER = ("series", "t_seconds", "cpu_cores", "mem_bytes")


def export(workload: GeneratedWorkload, path: Path) -> None:
    """Write a workload as a file; the ending of its name decides on the format."""
    write = {".csv": _write_csv, ".parquet": _write_parquet}.get(path.suffix)
    if write is None:
        raise TrimtabError(f"--output-file {path}: must end in .csv or .parquet")
    try:
        with replace_atomically(path) as place:
            write(workload, place)
    except OSError as error:
        raise TrimtabError(f"--output-file {path}: cannot be written: {error.strerror}") from None


def _write_csv(workload: GeneratedWorkload, path: Path) -> None:
    seconds = _sample_times(workload)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADER)
        for name, cpu, memory in zip(workload.names, workload.cpu, workload.memory, strict=True):
            columns = zip(seconds.tolist(), cpu.tolist(), memory.tolist(), strict=True)
            writer.writerows(escape_cells((name, *row)) for row in columns)


def _write_parquet(workload: GeneratedWorkload, path: Path) -> None:
    with require_extra("parquet", "--output-file", alternative="write .csv"):
        import pyarrow as pa
        from pyarrow import parquet
    codes = np.repeat(np.arange(workload.series, dtype=np.int32), workload.steps)
    table = pa.table(
        {
            "series": pa.DictionaryArray.from_arrays(codes, list(workload.names)),
            "t_seconds": np.tile(_sample_times(workload), workload.series),
            "cpu_cores": workload.cpu.ravel(),
            "mem_bytes": workload.memory.ravel(),
        }
    )
    parquet.write_table(table, path, compression="zstd")


def _sample_times(workload: GeneratedWorkload) -> Floats:
    seconds: Floats = workload.start + np.arange(workload.steps, dtype=np.float64) * workload.step
    return seconds
