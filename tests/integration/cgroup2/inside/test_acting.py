"""The acting half on a real cgroup v2 kernel: every knob, the order of writes, restoring, and death at any moment."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from harness.cluster.kubepods import Kubepods
from trimtab.node.arbiter import (
    BoundType,
    KnobRef,
    KnobRequest,
    Precedence,
    Value,
    resolve_requests,
    validate_values,
)
from trimtab.node.arbiter.host_knobs import MIN_FREE_KBYTES, WATERMARK_SCALE_FACTOR
from trimtab.node.cgroups import UNLIMITED
from trimtab.node.cgroups import knobs as k
from trimtab.node.executor import Executor, KnobFiles
from trimtab.node.executor.executor import order_writes
from trimtab.node.restore_journal import RestoreJournal, read_boot_id

MIB = 1 << 20
CPUS, ONE = frozenset({0, 1}), frozenset({1})


@pytest.fixture
def surface(kubepods: Kubepods) -> KnobFiles:
    return KnobFiles(kubepods.hierarchy)


@pytest.fixture
def journal(tmp_path: Path) -> RestoreJournal:
    return RestoreJournal(tmp_path / "journal", boot=read_boot_id())


def _all_knobs(path: str) -> dict[KnobRef, Value]:
    """A value for every knob that can be written without a disk, none of them what the kernel starts with."""
    values: dict[Any, Value] = {
        k.CPU_QUOTA: 50_000,
        k.CPU_BURST: 20_000,
        k.CPU_SHARES: 2048,
        k.CPUSET_CPUS: ONE,
        k.CPUSET_MEMS: frozenset({0}),
        k.MEMORY_MIN: MIB,
        k.MEMORY_LOW: 2 * MIB,
        k.MEMORY_HIGH: 64 * MIB,
        k.MEMORY_MAX: 128 * MIB,
        k.MEMORY_SWAP_MAX: 0,
        k.MEMORY_OOM_GROUP: 1,
    }
    return {KnobRef(path, knob): value for knob, value in values.items()}


def _held(surface: KnobFiles, spots: dict[KnobRef, Value]) -> dict[KnobRef, Value]:
    return {ref: surface.normalize(ref, value) for ref in spots if (value := surface.read(ref)) is not None}


def test_executor_writes_reads_and_restores_every_knob(
    kubepods: Kubepods, surface: KnobFiles, journal: RestoreJournal
) -> None:
    _, [path] = kubepods.pod()
    wanted = _all_knobs(path)
    before = _held(surface, wanted)
    executor = Executor(surface, journal)
    done = executor.apply(wanted, now=0.0)
    assert not done.rejected
    assert _held(surface, wanted) == {ref: surface.normalize(ref, value) for ref, value in wanted.items()}
    assert executor.apply(wanted, now=1.0).written == []
    assert not executor.release(now=2.0).rejected
    assert _held(surface, wanted) == before
    assert not journal.originals


def test_executor_restores_cpu_idle(kubepods: Kubepods, surface: KnobFiles, journal: RestoreJournal) -> None:
    _, [path] = kubepods.pod()
    executor = Executor(surface, journal)
    assert not executor.apply({KnobRef(path, k.CPU_IDLE): 1}, now=0.0).rejected
    assert surface.read(KnobRef(path, k.CPU_IDLE)) == 1
    executor.release(now=1.0)
    assert surface.read(KnobRef(path, k.CPU_IDLE)) == 0


def test_executor_sets_and_restores_sysctls(surface: KnobFiles, journal: RestoreJournal) -> None:
    wanted: dict[KnobRef, Value] = {
        KnobRef("", MIN_FREE_KBYTES): 20_000,
        KnobRef("", WATERMARK_SCALE_FACTOR): 150,
    }
    before = _held(surface, wanted)
    executor = Executor(surface, journal)
    assert not executor.apply(wanted, now=0.0).rejected
    assert _held(surface, wanted) == wanted
    executor.release(now=1.0)
    assert _held(surface, wanted) == before


def test_kernel_rejects_what_the_arbiter_clips(
    kubepods: Kubepods, surface: KnobFiles, journal: RestoreJournal
) -> None:
    """A quota below its burst, and a burst above its quota."""
    _, [path] = kubepods.pod()
    quota, burst = KnobRef(path, k.CPU_QUOTA), KnobRef(path, k.CPU_BURST)
    surface.write(quota, 50_000)
    surface.write(burst, 40_000)
    for ref, value in ((quota, 30_000), (burst, 60_000)):
        with pytest.raises(OSError, match="Invalid argument"):
            surface.write(ref, value)
    executor = Executor(surface, journal)
    for amount in (30_000, 90_000, 10_000):
        decided, _ = validate_values({quota: amount, burst: 10 * amount}, executor.build_baseline())
        assert not executor.apply(decided, now=0.0).rejected
        assert [surface.read(quota), surface.read(burst)] == [amount, amount]
    decided, _ = validate_values(
        {quota: 20_000}, executor.build_baseline()
    )  # the burst of 40,000 that was there before is in the way
    assert not executor.apply(decided, now=1.0).rejected
    assert [surface.read(quota), surface.read(burst)] == [20_000, 20_000]
    executor.release(now=2.0)
    assert [surface.read(quota), surface.read(burst)] == [50_000, 40_000]


def test_executor_raises_parents_first_and_lowers_them_last(
    kubepods: Kubepods, surface: KnobFiles, journal: RestoreJournal
) -> None:
    pod, [container] = kubepods.pod()
    tier = pod.rpartition("/")[0]
    paths = (tier, pod, container)
    executor = Executor(surface, journal)
    for cpus in (ONE, CPUS, CPUS - ONE, ONE):
        wanted: dict[KnobRef, Value] = {KnobRef(path, k.CPUSET_CPUS): cpus for path in paths}
        now = {ref: surface.read(ref) or frozenset() for ref in wanted}
        planned = order_writes(wanted, now)
        done = executor.apply(wanted, now=0.0)
        assert done.written == planned
        assert not done.rejected
        effective = [surface.read(KnobRef(path, k.CPUSET_EFFECTIVE)) for path in paths]
        assert effective == [cpus] * 3
    executor.release(now=1.0)
    assert [surface.read(KnobRef(path, k.CPUSET_CPUS)) for path in paths] == [frozenset()] * 3
    assert surface.read(KnobRef(container, k.CPUSET_EFFECTIVE)) == CPUS


def test_qos_controller_resolves_two_strategies_on_one_knob(
    kubepods: Kubepods, surface: KnobFiles, journal: RestoreJournal
) -> None:
    _, [path] = kubepods.pod()
    ref, executor = KnobRef(path, k.CPU_QUOTA), Executor(surface, journal)
    bold = KnobRequest(ref=ref, value=90_000, strategy="bold", reason="", precedence=Precedence.PRIORITY)
    careful = KnobRequest(
        ref=ref,
        value=40_000,
        strategy="careful",
        reason="",
        precedence=Precedence.SAFETY,
        bound=BoundType.AT_MOST,
    )
    for requests, value in (
        ([bold, careful], 40_000),
        ([careful], 40_000),
        ([bold], 90_000),
        ([], UNLIMITED),
    ):
        decided, conflicts = resolve_requests(requests, executor.build_baseline().value)
        admitted, _ = validate_values(decided, executor.build_baseline())
        assert not executor.apply(admitted, now=0.0).rejected
        assert surface.read(ref) == value
        assert len(conflicts) == (len(requests) == 2)


class Deadly(KnobFiles):
    """Kills its process without warning after so many writes."""

    left = 0

    def write(self, ref: KnobRef, value: Value) -> None:
        super().write(ref, value)
        type(self).left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("writes", [1, 4, 9])
def test_executor_restores_after_a_kill_between_writes(
    kubepods: Kubepods, surface: KnobFiles, tmp_path: Path, writes: int
) -> None:
    _, [path] = kubepods.pod()
    wanted = _all_knobs(path)
    before = _held(surface, wanted)
    child = os.fork()
    if not child:
        Deadly.left = writes
        Executor(Deadly(kubepods.hierarchy), RestoreJournal(tmp_path / "j", boot=read_boot_id())).apply(
            wanted, now=0.0
        )
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert _held(surface, wanted) != before
    journal = RestoreJournal(tmp_path / "j", boot=read_boot_id())
    assert not Executor(surface, journal).release(now=0.0).rejected
    assert _held(surface, wanted) == before
    assert not journal.originals


def test_executor_forgets_removed_pods(
    kubepods: Kubepods, surface: KnobFiles, journal: RestoreJournal
) -> None:
    pod, [path] = kubepods.pod()
    stays, [other] = kubepods.pod()
    executor = Executor(surface, journal)
    executor.apply(_all_knobs(path) | _all_knobs(other), now=0.0)
    kubepods.remove(pod)
    done = executor.apply(_all_knobs(path) | _all_knobs(other), now=61.0)
    assert not done.rejected
    assert {ref.path for ref in journal.originals} == {other}
    kubepods.remove(stays)
    assert not executor.release(now=62.0).rejected
    assert not journal.originals
