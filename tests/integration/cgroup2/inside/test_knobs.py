"""The registry of knobs compared with the kernel."""

from harness.cluster.kubepods import Kubepods
from trimtab.node.cgroups import KNOBS, UNLIMITED, CgroupVersion
from trimtab.node.cgroups import knobs as known


def test_knob_files_of_v2_exist_and_are_readable(kubepods: Kubepods) -> None:
    _, [container] = kubepods.pod()
    cgroup = kubepods.hierarchy.cgroup(container)
    absent = {"io.weight"}  # of BFQ or iocost, which this kernel has as modules
    for name, knob in KNOBS.items():
        if knob.v2 is not None and (name not in absent or cgroup.has(knob)):
            cgroup.read(knob)


def test_knob_values_read_back_as_written(kubepods: Kubepods) -> None:
    _, [container] = kubepods.pod()
    cgroup = kubepods.hierarchy.cgroup(container)
    for knob, value in [
        (known.CPU_QUOTA, 50_000),
        (known.CPU_BURST, 20_000),
        (known.CPU_QUOTA, UNLIMITED),
        (known.CPU_SHARES, 1024),
        (known.MEMORY_MIN, 1 << 20),
        (known.MEMORY_LOW, 5_000_000),
        (known.MEMORY_HIGH, 64 << 20),
        (known.MEMORY_MAX, 128 << 20),
        (known.MEMORY_MAX, UNLIMITED),
    ]:
        file = cgroup.file(knob)
        assert file is not None
        [line] = knob.encode(value, CgroupVersion.V2)
        file.write_text(line)
        assert knob.encode(cgroup.read(knob), CgroupVersion.V2) == (line,)
    assert cgroup.read(known.CPU_PERIOD) == 100_000
