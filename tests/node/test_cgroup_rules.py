"""The rules by which the kernel accepts, rounds and rejects writes to cgroups.

The fake tree must follow them; tests/integration/node runs the same tests on the kernel of this machine.
"""

import pytest

from node.cgroup_port import Cgroups
from trimtab.node.arbiter import KnobRef
from trimtab.node.cgroups import UNLIMITED, CgroupNotFound, CgroupVersion
from trimtab.node.cgroups.knobs import (
    CPU_BURST,
    CPU_QUOTA,
    CPU_SHARES,
    CPUSET_CPUS,
    CPUSET_EFFECTIVE,
    IO_READ_BPS,
    IO_WRITE_BPS,
    MEMORY_MAX,
)


def is_v1(cgroups: Cgroups) -> bool:
    return cgroups.hierarchy.version is CgroupVersion.V1


def test_kernel_starts_a_cgroup_without_limits(cgroups: Cgroups) -> None:
    pod, _ = cgroups.pod()
    files = cgroups.knob_files
    assert files.read(KnobRef(pod, CPU_QUOTA)) == UNLIMITED
    assert files.read(KnobRef(pod, CPU_BURST)) == 0
    assert files.read(KnobRef(pod, MEMORY_MAX)) == UNLIMITED
    assert files.read(KnobRef(pod, CPUSET_EFFECTIVE)) == cgroups.cpus


def test_kernel_rounds_memory_down_to_pages(cgroups: Cgroups) -> None:
    pod, _ = cgroups.pod()
    path = cgroups.knob_files.find_path(KnobRef(pod, MEMORY_MAX))
    assert path is not None
    cgroups.knob_files.write_line(path, str((64 << 20) + 4095))
    assert cgroups.knob_files.read(KnobRef(pod, MEMORY_MAX)) == 64 << 20
    cgroups.knob_files.write(KnobRef(pod, MEMORY_MAX), UNLIMITED)
    assert cgroups.knob_files.read(KnobRef(pod, MEMORY_MAX)) == UNLIMITED


def test_kernel_rejects_a_quota_below_a_millisecond(cgroups: Cgroups) -> None:
    pod, _ = cgroups.pod()
    path = cgroups.knob_files.find_path(KnobRef(pod, CPU_QUOTA))
    assert path is not None
    with pytest.raises(OSError, match="Invalid argument"):
        cgroups.knob_files.write_line(path, "999")
    assert cgroups.knob_files.read(KnobRef(pod, CPU_QUOTA)) == UNLIMITED


def test_kernel_rejects_a_burst_above_the_quota(cgroups: Cgroups) -> None:
    pod, _ = cgroups.pod()
    files, quota, burst = cgroups.knob_files, KnobRef(pod, CPU_QUOTA), KnobRef(pod, CPU_BURST)
    files.write(quota, 50_000)
    with pytest.raises(OSError, match="Invalid argument"):
        files.write(burst, 50_001)
    files.write(burst, 50_000)
    with pytest.raises(OSError, match="Invalid argument"):
        files.write(quota, 49_999)
    assert (files.read(quota), files.read(burst)) == (50_000, 50_000)


def test_kernel_keeps_child_quotas_within_the_parent_only_in_v1(cgroups: Cgroups) -> None:
    pod, [container] = cgroups.pod()
    files = cgroups.knob_files
    files.write(KnobRef(pod, CPU_QUOTA), 50_000)
    if is_v1(cgroups):
        with pytest.raises(OSError, match="Invalid argument"):
            files.write(KnobRef(container, CPU_QUOTA), 50_001)
        files.write(KnobRef(container, CPU_QUOTA), 50_000)
        with pytest.raises(OSError, match="Invalid argument"):
            files.write(KnobRef(pod, CPU_QUOTA), 49_999)
    else:
        files.write(KnobRef(container, CPU_QUOTA), 50_001)
        assert files.read(KnobRef(container, CPU_QUOTA)) == 50_001


def test_kernel_rejects_cpus_that_the_machine_does_not_have(cgroups: Cgroups) -> None:
    pod, _ = cgroups.pod()
    before = cgroups.knob_files.read(KnobRef(pod, CPUSET_CPUS))
    with pytest.raises(OSError, match=r"Invalid argument|Numerical result out of range"):
        cgroups.knob_files.write(KnobRef(pod, CPUSET_CPUS), frozenset({9999}))
    assert cgroups.knob_files.read(KnobRef(pod, CPUSET_CPUS)) == before


def test_kernel_keeps_child_cpus_within_the_parent(cgroups: Cgroups) -> None:
    pod, [container] = cgroups.pod()
    files, one = cgroups.knob_files, frozenset({min(cgroups.cpus)})
    if len(cgroups.cpus) < 2:
        pytest.skip("one CPU cannot be made fewer")
    if is_v1(cgroups):
        with pytest.raises(OSError, match="busy"):
            files.write(KnobRef(pod, CPUSET_CPUS), one)
        files.write(KnobRef(container, CPUSET_CPUS), one)
        files.write(KnobRef(pod, CPUSET_CPUS), one)
        with pytest.raises(PermissionError):
            files.write(KnobRef(container, CPUSET_CPUS), cgroups.cpus)
    else:
        files.write(KnobRef(container, CPUSET_CPUS), cgroups.cpus)
        files.write(KnobRef(pod, CPUSET_CPUS), one)
        assert files.read(KnobRef(container, CPUSET_CPUS)) == cgroups.cpus
    assert files.read(KnobRef(container, CPUSET_EFFECTIVE)) == one


def test_kernel_gives_a_new_child_the_cpus_of_its_parent(cgroups: Cgroups) -> None:
    pod, [container] = cgroups.pod()
    one = frozenset({min(cgroups.cpus)})
    cgroups.remove(container)
    cgroups.knob_files.write(KnobRef(pod, CPUSET_CPUS), one)
    cgroups.create(container)
    assert cgroups.knob_files.read(KnobRef(container, CPUSET_EFFECTIVE)) == one


def test_kernel_keeps_the_throttles_of_other_directions(cgroups: Cgroups, device: str) -> None:
    pod, _ = cgroups.pod()
    files, read, write = cgroups.knob_files, KnobRef(pod, IO_READ_BPS), KnobRef(pod, IO_WRITE_BPS)
    files.write(read, {device: 1 << 30})
    files.write(write, {device: 1 << 29})
    assert (files.read(read), files.read(write)) == ({device: 1 << 30}, {device: 1 << 29})
    files.write(read, {})
    assert (files.read(read), files.read(write)) == ({}, {device: 1 << 29})


def test_kernel_has_no_files_of_a_removed_cgroup(cgroups: Cgroups) -> None:
    pod, _ = cgroups.pod()
    cgroups.remove(pod)
    with pytest.raises(CgroupNotFound):
        cgroups.knob_files.write(KnobRef(pod, CPU_SHARES), 512)
    assert cgroups.knob_files.read(KnobRef(pod, CPU_SHARES)) is None
