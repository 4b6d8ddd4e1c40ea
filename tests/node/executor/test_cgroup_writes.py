"""The executor's writes to cgroups of version 1.

Here they are a fake tree; tests/integration/node/executor runs the same tests on this machine's own cgroups, and
tests/integration/cgroup2 has what only a v2 kernel shows.
"""

import shutil
from pathlib import Path
from typing import Any

import pytest

from node.cgroup_port import Cgroups
from trimtab.node.arbiter import KnobRef, validate_values
from trimtab.node.cgroups import UNLIMITED, Knob
from trimtab.node.cgroups.knobs import (
    CPU_BURST,
    CPU_QUOTA,
    CPU_SHARES,
    CPUSET_CPUS,
    IO_READ_BPS,
    IO_WRITE_IOPS,
    MEMORY_MAX,
)
from trimtab.node.executor import Executor
from trimtab.node.restore_journal import RestoreJournal


class Family:
    """A tier, a pod and its container."""

    def __init__(self, cgroups: Cgroups) -> None:
        self.child, [self.grandchild] = cgroups.pod()
        self.parent = self.child.rpartition("/")[0]
        self.surface = cgroups.knob_files
        self.cpus = cgroups.cpus
        self.make = cgroups.create
        self.remove = cgroups.remove

    def read(self, path: str, knob: Knob[Any]) -> Any:
        return self.surface.read(KnobRef(path, knob))


@pytest.fixture
def family(v1_cgroups: Cgroups) -> Family:
    return Family(v1_cgroups)


@pytest.fixture
def executor(family: Family, tmp_path: Path) -> Executor:
    return Executor(family.surface, RestoreJournal(tmp_path / "journal", boot="b"))


def test_executor_writes_only_differing_values(family: Family, executor: Executor) -> None:
    wanted = {KnobRef(family.parent, CPU_QUOTA): 50_000}
    assert executor.apply(wanted, now=0.0).written == [*wanted.items()]
    assert executor.apply(wanted, now=1.0).written == []
    assert family.read(family.parent, CPU_QUOTA) == 50_000


def test_executor_rewrites_foreign_values_after_ten_seconds(family: Family, executor: Executor) -> None:
    ref = KnobRef(family.parent, CPU_QUOTA)
    executor.apply({ref: 50_000}, now=0.0)
    family.surface.write(ref, 70_000)
    assert executor.apply({ref: 50_000}, now=9.0).written == []
    assert executor.apply({ref: 50_000}, now=10.0).written == [(ref, 50_000)]


def test_executor_restores_the_latest_foreign_value(family: Family, executor: Executor) -> None:
    """As the kubelet does when a pod is resized."""
    ref = KnobRef(family.parent, CPU_QUOTA)
    for request in (60_000, None):
        executor.apply({ref: 50_000}, now=0.0)
        family.surface.write(ref, 70_000)
        if request:
            executor.apply({ref: request}, now=1.0)
            assert family.read(family.parent, CPU_QUOTA) == request
        executor.release(now=2.0)
        assert family.read(family.parent, CPU_QUOTA) == 70_000


def test_executor_restores_knobs_without_requests(family: Family, executor: Executor) -> None:
    spots = [KnobRef(family.parent, knob) for knob in (CPU_QUOTA, CPU_SHARES, MEMORY_MAX)]
    before = [family.surface.read(ref) for ref in spots]
    executor.apply(dict(zip(spots, (50_000, 512, 64 << 20), strict=True)), now=0.0)
    assert [family.surface.read(ref) for ref in spots] == [50_000, 512, 64 << 20]
    done = executor.apply({spots[0]: 60_000}, now=1.0)
    assert set(done.restored) == set(spots[1:])
    executor.release(now=2.0)
    assert [family.surface.read(ref) for ref in spots] == before


def test_executor_orders_writes_of_a_cgroup_subtree(family: Family, executor: Executor) -> None:
    cpus, one = family.cpus, frozenset({min(family.cpus)})
    if len(cpus) < 2:
        pytest.skip("one CPU cannot be made fewer")
    paths = (family.parent, family.child, family.grandchild)
    for wanted in (one, cpus, cpus - one, one):
        decided, _ = validate_values({KnobRef(family.parent, CPUSET_CPUS): wanted}, executor.build_baseline())
        assert not executor.apply(decided, now=0.0).rejected
        assert [family.read(path, CPUSET_CPUS) for path in paths] == [wanted] * 3
    executor.release(now=1.0)
    assert [family.read(path, CPUSET_CPUS) for path in paths] == [cpus] * 3


def test_executor_changes_quota_and_burst_in_a_valid_order(family: Family, executor: Executor) -> None:
    def decide(quota: int, burst: int) -> dict[str, str]:
        wanted = {
            KnobRef(path, knob): value
            for path in (family.parent, family.child)
            for knob, value in ((CPU_QUOTA, quota), (CPU_BURST, burst))
        }
        admitted, _ = validate_values(wanted, executor.build_baseline())
        return {str(ref): why for ref, why in executor.apply(admitted, now=0.0).rejected.items()}

    assert [decide(quota, quota) for quota in (20_000, 90_000, 10_000, 50_000)] == [{}] * 4
    executor.release(now=1.0)
    assert family.read(family.child, CPU_BURST) == 0
    assert family.read(family.child, CPU_QUOTA) == UNLIMITED


def test_executor_restores_children_created_under_a_limited_parent(
    family: Family, executor: Executor
) -> None:
    cpus, one = family.cpus, frozenset({min(family.cpus)})
    if len(cpus) < 2:
        pytest.skip("one CPU cannot be made fewer")
    family.remove(family.grandchild)

    def squeeze() -> None:
        decided, _ = validate_values({KnobRef(family.parent, CPUSET_CPUS): one}, executor.build_baseline())
        assert not executor.apply(decided, now=0.0).rejected

    squeeze()
    family.make(family.grandchild)
    assert family.read(family.grandchild, CPUSET_CPUS) == one
    squeeze()
    executor.release(now=2.0)
    assert family.read(family.grandchild, CPUSET_CPUS) == cpus


def test_executor_drops_removed_cgroups_from_the_journal(family: Family, tmp_path: Path) -> None:
    journal = RestoreJournal(tmp_path / "journal", boot="b")
    executor, ref = Executor(family.surface, journal), KnobRef(family.grandchild, CPU_QUOTA)
    executor.apply({ref: 50_000}, now=0.0)
    family.remove(family.grandchild)
    done = executor.apply({ref: 60_000}, now=1.0)
    assert not done.rejected
    assert not journal.originals


def test_executor_reports_rejected_values_and_continues(family: Family, executor: Executor) -> None:
    cpus = family.cpus
    bad, good = KnobRef(family.child, CPUSET_CPUS), KnobRef(family.child, CPU_QUOTA)
    done = executor.apply({bad: frozenset({9999}), good: 50_000}, now=0.0)
    assert [*done.rejected] == [bad]
    assert family.read(family.child, CPU_QUOTA) == 50_000
    executor.release(now=1.0)
    assert family.read(family.child, CPUSET_CPUS) == cpus


def test_executor_sets_and_restores_io_throttles(family: Family, executor: Executor, device: str) -> None:
    spots = [KnobRef(family.child, knob) for knob in (IO_READ_BPS, IO_WRITE_IOPS)]
    for amount in (1 << 30, 1 << 29):
        assert not executor.apply({ref: {device: amount} for ref in spots}, now=0.0).rejected
        assert [family.surface.read(ref) for ref in spots] == [{device: amount}] * 2
    executor.release(now=1.0)
    assert [family.surface.read(ref) for ref in spots] == [{}] * 2


def test_executor_keeps_a_resize_to_the_value_it_had_set(
    family: Family, executor: Executor, tmp_path: Path
) -> None:
    """A throttled container is raised to three times its limit, and a resize may well choose the same value."""
    ref = KnobRef(family.child, CPU_QUOTA)
    family.surface.write(ref, 50_000)
    executor.apply({ref: 150_000}, now=0.0, external_values={ref: 50_000})
    family.surface.write(ref, 150_000)  # as the kubelet does, and reports a moment later
    executor.apply({}, now=1.0, external_values={ref: 150_000})
    assert family.read(family.child, CPU_QUOTA) == 150_000
    assert not RestoreJournal(tmp_path / "journal", boot="b").originals


def test_executor_dry_run_logs_and_writes_nothing(family: Family, tmp_path: Path) -> None:
    journal = RestoreJournal(tmp_path / "journal", boot="b")
    executor, ref = Executor(family.surface, journal, dry_run=True), KnobRef(family.parent, CPU_QUOTA)
    assert executor.apply({ref: 50_000}, now=0.0).written == [(ref, 50_000)]
    assert executor.apply({ref: 50_000}, now=99.0).written == []  # nor is it logged again
    assert executor.apply({}, now=100.0).written == []
    assert executor.apply({ref: 50_000}, now=101.0).written == [(ref, 50_000)]  # but a new request is logged
    assert family.read(family.parent, CPU_QUOTA) == UNLIMITED
    assert not journal.originals


def test_executor_restores_all_although_the_journal_is_unwritable(family: Family, tmp_path: Path) -> None:
    cpus, one = family.cpus, frozenset({min(family.cpus)})
    state = tmp_path / "state"
    executor = Executor(family.surface, RestoreJournal(state / "journal", boot="b"))
    tier, pod, new_cgroup = (
        KnobRef(family.parent, CPUSET_CPUS),
        KnobRef(family.child, CPU_QUOTA),
        f"{family.parent}/new",
    )
    decided, _ = validate_values({tier: one, pod: 50_000}, executor.build_baseline())
    executor.apply(decided, now=0.0)
    family.surface.write(pod, 70_000)  # as the kubelet does when a pod is resized
    family.make(new_cgroup)
    shutil.rmtree(state)
    executor.release(now=1.0)
    assert (family.read(family.parent, CPUSET_CPUS), family.read(family.child, CPU_QUOTA)) == (cpus, 70_000)


def test_executor_restores_although_new_values_cannot_be_journalled(family: Family, tmp_path: Path) -> None:
    """Pods still start on a node whose disk is full."""
    state = tmp_path / "state"
    executor = Executor(family.surface, RestoreJournal(state / "journal", boot="b"))
    held, new = KnobRef(family.parent, CPU_QUOTA), KnobRef(family.child, CPU_QUOTA)
    executor.apply({held: 50_000}, now=0.0)
    shutil.rmtree(state)
    assert executor.apply({new: 60_000}, now=1.0).rejected == {
        new: "cannot be written to the journal: No such file or directory"
    }
    assert {family.surface.read(held), family.surface.read(new)} == {UNLIMITED}


def test_executor_changes_held_values_although_the_journal_is_unwritable(
    family: Family, tmp_path: Path
) -> None:
    state, held = tmp_path / "state", KnobRef(family.parent, CPU_QUOTA)
    executor = Executor(family.surface, RestoreJournal(state / "journal", boot="b"))
    executor.apply({held: 50_000}, now=0.0)
    shutil.rmtree(state)
    assert not executor.apply({held: 20_000}, now=1.0).rejected
    assert family.surface.read(held) == 20_000
    state.mkdir()  # and now the disk has space again
    executor.apply({held: 30_000}, now=2.0)
    Executor(family.surface, RestoreJournal(state / "journal", boot="b")).release(now=3.0)
    assert family.surface.read(held) == UNLIMITED


def test_executor_after_a_crash_restores_original_values(family: Family, tmp_path: Path) -> None:
    ref = KnobRef(family.parent, CPU_QUOTA)
    Executor(family.surface, RestoreJournal(tmp_path / "journal", boot="b")).apply({ref: 50_000}, now=0.0)
    next_life = Executor(family.surface, RestoreJournal(tmp_path / "journal", boot="b"))
    next_life.release(now=0.0)
    assert family.read(family.parent, CPU_QUOTA) == UNLIMITED
