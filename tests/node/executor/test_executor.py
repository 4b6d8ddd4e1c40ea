"""The executor on this machine's own cgroups (v1 where it has those), and on folders that stand for resctrl and sysctls.

What only a v2 kernel shows is in tests/cgroup2.
"""

from pathlib import Path

import pytest

from trimtab.api.nodeqospolicy import BlockDeviceSpec, BlockType
from trimtab.node.arbiter import KnobRef
from trimtab.node.arbiter.host_knobs import CACHE_SHARES, MIN_FREE_KBYTES, WATERMARK_SCALE_FACTOR
from trimtab.node.cgroups import UNLIMITED, CgroupVersion, Hierarchy
from trimtab.node.cgroups.knobs import (
    CPU_BURST,
    CPU_QUOTA,
    CPUSET_CPUS,
    IO_WEIGHT,
)
from trimtab.node.executor import Executor, KnobFiles
from trimtab.node.executor.devices import find_device_numbers
from trimtab.node.executor.executor import order_writes
from trimtab.node.restore_journal import RestoreJournal


@pytest.mark.parametrize(
    ("block", "found"),
    [
        (BlockDeviceSpec(name="/dev/sdb"), ("8:16",)),
        (BlockDeviceSpec(name="sdz"), ()),
        (BlockDeviceSpec(name="/dev/mapper/data-logs"), ("253:1",)),
        (BlockDeviceSpec(name="/dev/mapper/data--2-home"), ("253:2",)),
        (BlockDeviceSpec(name="/dev/data-2/home"), ("253:2",)),
        (BlockDeviceSpec(name="/dev/mapper/data"), ()),
        (BlockDeviceSpec(name="data", type=BlockType.VOLUME_GROUP), ("253:0", "253:1")),
        (BlockDeviceSpec(name="data-2", type=BlockType.VOLUME_GROUP), ("253:2",)),
        (BlockDeviceSpec(name="sdb", type=BlockType.POD_VOLUME), ()),
    ],
)
def test_devices_are_found_from_inside_a_container(
    tmp_path: Path, block: BlockDeviceSpec, found: tuple[str, ...]
) -> None:
    volumes = {"dm-0": "data-home", "dm-1": "data-logs", "dm-2": "data--2-home"}
    for name, number in {"sdb": "8:16", "dm-0": "253:0", "dm-1": "253:1", "dm-2": "253:2"}.items():
        (tmp_path / "class/block" / name / "dm").mkdir(parents=True)
        (tmp_path / "class/block" / name / "dev").write_text(f"{number}\n")
        (tmp_path / "class/block" / name / "dm/name").write_text(f"{volumes.get(name, '')}\n")
    assert find_device_numbers(block, sys=tmp_path) == found


@pytest.mark.parametrize(
    ("written", "left", "restored"),
    [
        pytest.param(None, 90_000, 67_584, id="what it wrote last"),
        pytest.param(80_000, 90_000, 67_584, id="killed before it wrote what it was about to"),
        pytest.param(None, 67_584, 67_584, id="killed before it wrote at all, or after it had restored"),
        pytest.param(None, 150_000, 150_000, id="somebody else wrote it since"),
    ],
)
def test_executor_after_a_crash_keeps_values_that_others_wrote(
    machine: KnobFiles, tmp_path: Path, written: int | None, left: int, restored: int
) -> None:
    """As the kubelet does when it resizes a pod while there is no agent."""
    path, ref = tmp_path / "journal", KnobRef("", MIN_FREE_KBYTES)
    last_life = Executor(machine, RestoreJournal(path, boot="b"))
    last_life.apply({ref: 100_000}, now=0.0)
    last_life.apply({ref: 90_000}, now=1.0)
    if written:
        RestoreJournal(path, boot="b").record_write(ref, written)
    machine.write(ref, left)
    Executor(machine, RestoreJournal(path, boot="b")).release(now=0.0)
    assert machine.read(ref) == restored


def test_executor_restores_after_crashes_what_a_full_disk_did_not_let_it_record(
    machine: KnobFiles, tmp_path: Path
) -> None:
    path, ref, other = tmp_path / "journal", KnobRef("", MIN_FREE_KBYTES), KnobRef("", WATERMARK_SCALE_FACTOR)
    last_life = Executor(machine, RestoreJournal(path, boot="b"))
    last_life.apply({ref: 100_000}, now=0.0)
    kept = path.read_bytes()
    path.unlink()
    path.mkdir()  # as little to be written to as a file on a full disk
    last_life.apply({ref: 90_000}, now=1.0)
    assert machine.read(ref) == 90_000
    path.rmdir()
    path.write_bytes(kept)
    # The second agent keeps the value, and its journal is complete again; the third one trusts it.
    Executor(machine, RestoreJournal(path, boot="b")).apply({ref: 90_000, other: 20}, now=0.0)
    Executor(machine, RestoreJournal(path, boot="b")).release(now=0.0)
    assert machine.read(ref) == 67_584


def test_executor_dry_run_after_a_crash_keeps_the_journal(machine: KnobFiles, tmp_path: Path) -> None:
    path, ref = tmp_path / "journal", KnobRef("", MIN_FREE_KBYTES)
    Executor(machine, RestoreJournal(path, boot="b")).apply({ref: 100_000}, now=0.0)
    dry = Executor(machine, RestoreJournal(path, boot="b"), dry_run=True)
    for now in (0.0, 60.0, 120.0):
        dry.apply({}, now=now)
    Executor(machine, RestoreJournal(path, boot="b")).release(now=0.0)
    assert machine.read(ref) == 67584


def test_executor_raises_parents_first_and_lowers_them_last() -> None:
    parent, child, burst = KnobRef("a", CPU_QUOTA), KnobRef("a/b", CPU_QUOTA), KnobRef("a/b", CPU_BURST)
    small, large = {parent: 2000, child: 1000, burst: 500}, {parent: UNLIMITED, child: 9000, burst: 5000}
    assert [ref for ref, _ in order_writes(large, small)] == [parent, child, burst]
    assert [ref for ref, _ in order_writes(small, large)] == [burst, child, parent]


def test_executor_moves_cpusets_through_their_union() -> None:
    parent, child = KnobRef("a", CPUSET_CPUS), KnobRef("a/b", CPUSET_CPUS)
    left, right, both = frozenset({0}), frozenset({1}), frozenset({0, 1})
    writes = order_writes({parent: right, child: right}, {parent: left, child: left})
    assert writes == [(parent, both), (child, both), (child, right), (parent, right)]


@pytest.fixture
def machine(tmp_path: Path) -> KnobFiles:
    """Folders in the place of sysctls and of resctrl, which few test machines have."""
    for folder in ("sys/vm", "resctrl", "cgroup"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "sys/vm/min_free_kbytes").write_text("67584\n")
    hierarchy = Hierarchy(tmp_path / "cgroup", CgroupVersion.V2)
    return KnobFiles(hierarchy, sysctls=tmp_path / "sys", resctrl=tmp_path / "resctrl")


def test_executor_sets_and_restores_sysctls(machine: KnobFiles, tmp_path: Path) -> None:
    executor, ref = (
        Executor(machine, RestoreJournal(tmp_path / "journal", boot="b")),
        KnobRef("", MIN_FREE_KBYTES),
    )
    executor.apply({ref: 100_000}, now=0.0)
    assert machine.read(ref) == 100_000
    executor.release(now=1.0)
    assert machine.read(ref) == 67584


def test_executor_restores_default_weight_beside_a_device_weight(machine: KnobFiles, tmp_path: Path) -> None:
    weights = tmp_path / "cgroup" / "io.weight"
    weights.write_text("default 100\n8:16 50\n")
    executor, ref = Executor(machine, RestoreJournal(tmp_path / "journal", boot="b")), KnobRef("", IO_WEIGHT)
    assert not executor.apply({ref: {"default": 40}}, now=0.0).rejected
    assert weights.read_text() == "default 40\n"  # the kernel keeps the other line
    assert not executor.release(now=1.0).rejected
    assert weights.read_text() == "default 100\n"


def test_resctrl_knobs_use_the_kernels_spelling() -> None:
    shares = {"L3:0": 0x3, "L3:1": 0x7FF, "MB:0": 30}
    assert CACHE_SHARES.encode(shares, CgroupVersion.V2) == ("L3:0=3", "L3:1=7ff", "MB:0=30")
    assert CACHE_SHARES.v2 is not None
    more = "    L2:0=0f\nSMBA:0=2048\n"  # which others may share out
    assert CACHE_SHARES.v2.decode(f"    L3:0=003;1=7ff\n    MB:0= 30\n{more}") == shares


def test_executor_assigns_threads_to_a_class_once(machine: KnobFiles, tmp_path: Path) -> None:
    """The kernel adds what is written to those that are there; a plain file shows only the last."""
    tasks = machine.resctrl / "BE" / "tasks"
    tasks.parent.mkdir()
    tasks.write_text("7\n")
    executor = Executor(machine, RestoreJournal(tmp_path / "journal", boot="b"))
    executor.assign_tasks({"BE": frozenset({7}), "LS": frozenset({9})})
    assert tasks.read_text() == "7\n"
    executor.assign_tasks({"BE": frozenset({7, 8})})
    assert tasks.read_text() == "8\n"
