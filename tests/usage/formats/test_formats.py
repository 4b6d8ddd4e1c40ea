"""Test detection and reading of public trace formats."""

import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trimtab.errors import TrimtabError
from trimtab.usage.files import read_trace
from trimtab.usage.formats import FORMATS
from trimtab.usage.formats.file_parts import find_parts
from trimtab.usage.trace import Trace

GIB = 2.0**30
BITBRAINS = (
    "Timestamp [ms];\tCPU cores;\tCPU capacity provisioned [MHZ];\tCPU usage [MHZ];\tCPU usage [%];\t"
    "Memory capacity provisioned [KB];\tMemory usage [KB];\tDisk read throughput [KB/s];\t"
    "Disk write throughput [KB/s];\tNetwork received throughput [KB/s];\tNetwork transmitted throughput [KB/s]\n"
)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


def tar(path: Path, **members: str) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in members.items():
            entry = tarfile.TarInfo(f"{name}.csv")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return path


def bitbrains(folder: Path) -> Path:
    row = "{};\t4;\t11704.0;\t{};\t0.9;\t6.7E7;\t{};\t0.0;\t8.3;\t0.1;\t1.4\n"
    for month, start in (("2013-7", 1372629600), ("2013-8", 1372629600 + 600)):
        rows = [row.format(start, 1170.4, 2048.0), row.format(start + 300, 2926.0, 4096.0)]
        write(folder / "rnd" / month / "1.csv", BITBRAINS + "".join(rows))
    off = "1372629600;\t1;\t0.0;\t0.0;\t0.0;\t1024.0;\t0.0;\t0.0;\t0.0;\t0.0;\t0.0\n"
    write(folder / "rnd" / "2013-7" / "2.csv", BITBRAINS + off)
    return folder / "rnd"


def google2011(folder: Path) -> Path:
    row = "{start}000000,{end}000000,3418309,{task},4155527081,{cpu},{memory},0.08,0.0005,0.05,{most},0,0.0001,0.1,0,2.9,0.01,0,0,0.02\n"
    for part, start in (("part-00000-of-00500.csv.gz", 600), ("part-00001-of-00500.csv.gz", 900)):
        text = row.format(start=start, end=start + 300, task=0, cpu=0.03125, memory=0.0625, most=0.125)
        text += row.format(start=start, end=start + 300, task=1, cpu=0.0625, memory=0.25, most="")
        write(folder / "task_usage" / part, text)
    return folder / "task_usage"


INSTANCES = [
    {
        "start_time": 300_000_000 * step,
        "end_time": 300_000_000 * (step + 1),
        "collection_id": 330587238433,
        "instance_index": index,
        "machine_id": 23867,
        "average_usage": {"cpus": 0.015625 * (index + 1), "memory": 0.0625},
        "maximum_usage": {"cpus": 0.5, "memory": 0.125 * (index + 1)},
        "sample_rate": 1.0,
    }
    for step in (1, 2)
    for index in (0, 1)
]


def google2019_json(folder: Path) -> Path:
    def exported(row: Mapping[str, object]) -> str:
        return json.dumps(
            {key: str(value) if isinstance(value, int) else value for key, value in row.items()}
        )

    lines = "".join(exported(row) + "\n" for row in INSTANCES)
    return write(folder / "instance_usage-000000000000.json.gz", lines)


def google2019_parquet(folder: Path) -> Path:
    plain = folder / "plain"
    pq.write_table(pa.Table.from_pylist(INSTANCES), plain)
    compressed = folder / "instance_usage-000000000000.parquet.gz"
    compressed.write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    return compressed


def google2019_parquet_not_compressed(folder: Path) -> Path:
    pq.write_table(pa.Table.from_pylist(INSTANCES), folder / "instance_usage-000000000000.parquet.gz")
    return folder


def google2019_csv(folder: Path) -> Path:
    text = "start_time,end_time,collection_id,instance_index,average_usage_cpus,average_usage_memory,maximum_usage_memory\n"
    for row in INSTANCES:
        mean, most = row["average_usage"], row["maximum_usage"]
        assert isinstance(mean, dict)
        assert isinstance(most, dict)
        text += f"{row['start_time']},{row['end_time']},{row['collection_id']},{row['instance_index']},"
        text += f"{mean['cpus']},{mean['memory']},{most['memory']}\n"
    return write(folder / "usage.csv", text)


def google2019_csv_with_records_as_text(folder: Path) -> Path:
    text = ",start_time,collection_id,instance_index,average_usage,maximum_usage\n"
    for number, row in enumerate(INSTANCES):
        text += f"{number},{row['start_time']},{row['collection_id']},{row['instance_index']},"
        text += f'"{row["average_usage"]}","{row["maximum_usage"]}"\n'
    return write(folder / "borg_traces_data.csv", text)


CONTAINER_USAGE = "".join(
    f"{container},m_{machine},{time},{cpu},{memory},,,,0.1,0.1,5\n"
    for time in (386640, 386700)
    for container, machine, cpu, memory in (("c_1", 7, 25, 50), ("c_2", 8, 101, -1))
)
CONTAINER_META = (
    "c_1,m_7,0,app_5052,started,400,400,1.56\n"
    "c_1,m_7,287942,app_5052,started,400,400,3.125\n"
    "c_2,m_8,0,app_1,started,800,800,3.13\n"
    "c_3,m_8,0,app_1,started,800,800,3.13\n"
)
MACHINE_USAGE = "m_1,386640,25,50,,,43.0,33.0,4\nm_1,386650,50,,,,43.0,33.0,4\n"
MACHINE_META = "m_1,0,1,41,96,100,USING\n"


def alibaba2018(folder: Path) -> Path:
    tar(folder / "container_meta.tar.gz", container_meta=CONTAINER_META)
    tar(folder / "machine_meta.tar.gz", machine_meta=MACHINE_META)
    return tar(folder / "container_usage.tar.gz", container_usage=CONTAINER_USAGE)


def alibaba2018_machines(folder: Path) -> Path:
    write(folder / "machine_meta.csv", MACHINE_META)
    write(folder / "machine_usage.csv", MACHINE_USAGE)
    return folder


def azure(folder: Path) -> Path:
    table = "{},sub,dep,0,2591700,99.3,3.4,10.1,Delay-insensitive,{},{}\n"
    rows = (("vmA+x/==", "4", "8"), ("vmB", ">24", ">64"), ("vmOther", "2", "4"))
    write(folder / "vmtable" / "vmtable.csv.gz", "".join(table.format(*row) for row in rows))
    readings = "".join(
        f"{time},{vm},1.0,90.0,{mean}\n"
        for time in (0, 300)
        for vm, mean in (("vmA+x/==", 50.0), ("vmB", 25.0))
    )
    write(
        folder / "vm_cpu_readings" / "vm_cpu_readings-file-1-of-195.csv.gz", readings + "300,vmGone,1,2,3\n"
    )
    return folder


def check_bitbrains(trace: Trace) -> None:
    assert trace.names == ("1", "2")
    assert (trace.start, trace.step) == (1372629600, 300)
    np.testing.assert_allclose(trace.cpu[:, 0], [0.4, 1.0, 0.4, 1.0])
    assert trace.memory[:, 0].tolist() == [2048 * 1024, 4096 * 1024, 2048 * 1024, 4096 * 1024]
    assert trace.cpu[0, 1] == 0


def check_google2011(trace: Trace) -> None:
    assert trace.names == ("3418309/0", "3418309/1")
    assert (trace.start, trace.step) == (600, 300)
    assert trace.cpu.tolist() == [[1, 2], [1, 2]]
    assert trace.memory.tolist() == [[16 * GIB, 32 * GIB]] * 2


def check_google2019(trace: Trace) -> None:
    assert trace.names == ("330587238433/0", "330587238433/1")
    assert (trace.start, trace.step) == (300, 300)
    assert trace.cpu.tolist() == [[1, 2], [1, 2]]
    assert trace.memory.tolist() == [[32 * GIB, 64 * GIB]] * 2


def check_alibaba2018(trace: Trace) -> None:
    assert trace.names == ("c_1", "c_2")
    assert (trace.start, trace.step) == (386640, 60)
    assert trace.cpu[:, 0].tolist() == [1, 1]
    assert trace.memory[:, 0].tolist() == [6 * GIB, 6 * GIB]
    assert np.isnan(trace.cpu[:, 1]).all()
    assert np.isnan(trace.memory[:, 1]).all()


def check_alibaba2018_machines(trace: Trace) -> None:
    assert trace.cpu.max() == 48
    assert np.nanmax(trace.memory) == 192 * GIB


def check_azure(trace: Trace) -> None:
    assert trace.names == ("vmA+x/==", "vmB", "vmGone")
    assert trace.cpu[:, :2].tolist() == [[2, 6], [2, 6]]
    assert np.isnan(trace.cpu[:, 2]).all()
    assert np.isnan(trace.memory).all()


SAMPLES: list[tuple[str, Callable[[Path], Path], Callable[[Trace], None]]] = [
    ("bitbrains", bitbrains, check_bitbrains),
    ("google2011", google2011, check_google2011),
    ("google2019", google2019_json, check_google2019),
    ("google2019", google2019_parquet, check_google2019),
    ("google2019", google2019_parquet_not_compressed, check_google2019),
    ("google2019", google2019_csv, check_google2019),
    ("google2019", google2019_csv_with_records_as_text, check_google2019),
    ("alibaba2018", alibaba2018, check_alibaba2018),
    ("alibaba2018-machines", alibaba2018_machines, check_alibaba2018_machines),
    ("azure", azure, check_azure),
]


@pytest.mark.parametrize(
    ("name", "sample", "check"), SAMPLES, ids=[sample.__name__ for _, sample, _ in SAMPLES]
)
def test_read_trace_detects_and_accepts_each_format(
    tmp_path: Path, name: str, sample: Callable[[Path], Path], check: Callable[[Trace], None]
) -> None:
    path = sample(tmp_path)
    check(read_trace(path))
    shares: list[float] = []
    check(read_trace(path, format_name=name, progress=shares.append))
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_samples_cover_every_format() -> None:
    assert FORMATS.keys() == {name for name, _, _ in SAMPLES} | {"trimtab"}


def test_read_trace_reads_zip_like_folder(tmp_path: Path) -> None:
    folder = bitbrains(tmp_path / "unpacked")
    with zipfile.ZipFile(tmp_path / "rnd.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.rglob("*.csv")):
            archive.write(file, file.relative_to(folder.parent))
    check_bitbrains(read_trace(tmp_path / "rnd.zip"))


def test_bitbrains_reads_milliseconds(tmp_path: Path) -> None:
    rows = "".join(
        f"{1372629600000 + 300000 * i};\t1;\t1000;\t500;\t50;\t1;\t1;\t0;\t0;\t0;\t0\n" for i in (0, 1)
    )
    trace = read_trace(write(tmp_path / "1.csv", BITBRAINS + rows))
    assert (trace.start, trace.step) == (1372629600, 300)


def test_read_trace_rejects_folder_with_several_formats(tmp_path: Path) -> None:
    alibaba2018(tmp_path)
    tar(tmp_path / "machine_usage.tar.gz", machine_usage=MACHINE_USAGE)
    with pytest.raises(
        TrimtabError, match="several formats \\(alibaba2018, alibaba2018-machines\\); choose one"
    ):
        read_trace(tmp_path)
    check_alibaba2018_machines(read_trace(tmp_path, format_name="alibaba2018-machines"))


def test_find_parts_reads_only_first_table_of_tar(tmp_path: Path) -> None:
    """To find the second, tens of gigabytes would have to be unpacked."""
    archive = tar(tmp_path / "both.tar.gz", container_usage=CONTAINER_USAGE, batch_task="a,b\n")
    assert [part.member for part in find_parts(archive)] == ["container_usage.csv"]


@pytest.mark.parametrize(
    ("sample", "harm", "line"),
    [
        (google2011, lambda data: data[:-20], "is damaged: Compressed file ended before"),
        (google2019_json, lambda data: data[: len(data) // 2], "is damaged: Compressed file ended before"),
        (
            google2019_json,
            lambda _: gzip.compress(b'{"start_time":"1","collection_id":"2",'),
            "line 1 is not an instance",
        ),
        (google2019_parquet, lambda data: gzip.compress(gzip.decompress(data)[:-9]), "is not a parquet file"),
        (alibaba2018, lambda data: data[:30], "the archive cannot be read"),
    ],
)
def test_read_trace_reports_damaged_file_in_one_line(
    tmp_path: Path, sample: Callable[[Path], Path], harm: Callable[[bytes], bytes], line: str
) -> None:
    path = sample(tmp_path)
    file = path if path.is_file() else min(path.rglob("*.gz"))
    file.write_bytes(harm(file.read_bytes()))
    with pytest.raises(TrimtabError) as refused:
        read_trace(file, format_name="google2019" if "2019" in sample.__name__ else None)
    assert line in str(refused.value)
    assert str(refused.value).startswith(str(file))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("bitbrains", "Timestamp [ms];\tCPU cores\n1;\t1\n", "CPU capacity provisioned [MHZ] is missing"),
        ("google2011", "600000000,900000000,1\n", "line 1 must contain start time, job ID, task index"),
        (
            "alibaba2018",
            CONTAINER_USAGE + "c_1,m_7,late,1,1,,,,,,\n",
            "line 5 must contain container_id, time_stamp",
        ),
        ("azure", "0,vm,1,2\n", "plain numbers for timestamp, avg cpu: 0,vm,1,2"),
        ("google2019", "start_time,collection_id\n1,2\n", "column instance_index is missing"),
    ],
)
def test_read_trace_reports_line_that_does_not_match_format(
    tmp_path: Path, name: str, text: str, line: str
) -> None:
    with pytest.raises(TrimtabError) as refused:
        read_trace(write(tmp_path / "usage.csv", text), format_name=name)
    assert line in str(refused.value)


@pytest.mark.parametrize(
    ("usage", "table"), [(CONTAINER_USAGE, "container_meta"), ("0,vm,1,2,3\n", "vmtable")]
)
def test_read_trace_requires_capacity_table_for_shares(tmp_path: Path, usage: str, table: str) -> None:
    with pytest.raises(TrimtabError, match=f"{table}.csv is missing next to it"):
        read_trace(write(tmp_path / "usage.csv", usage))


def test_read_trace_rejects_unknown_format(tmp_path: Path) -> None:
    with pytest.raises(TrimtabError, match="format 'gwa' is not known; there are: trimtab, bitbrains,"):
        read_trace(google2011(tmp_path), format_name="gwa")
    with pytest.raises(TrimtabError, match="contains no usage in the format azure"):
        read_trace(google2011(tmp_path), format_name="azure")
