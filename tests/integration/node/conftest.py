"""Real cgroups of this machine, laid out as the kubelet does."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness import UnavailableError
from harness.cluster.kubepods import Kubepods
from trimtab.node.cgroups import CgroupVersion


@pytest.fixture
def kubepods() -> Iterator[Kubepods]:
    """An empty kubepods."""
    with ExitStack() as stack:
        try:
            made = stack.enter_context(Kubepods.make())
        except (UnavailableError, OSError) as why:
            pytest.skip(f"no cgroups of our own on this machine: {why}")
        yield made


@pytest.fixture
def cgroups(kubepods: Kubepods) -> Kubepods:
    return kubepods


@pytest.fixture
def v1_cgroups(kubepods: Kubepods) -> Kubepods:
    if kubepods.hierarchy.version is not CgroupVersion.V1:
        pytest.skip("this machine has cgroup v2, which tests/integration/cgroup2 is about")
    return kubepods


@pytest.fixture
def device() -> str:
    """Return a disk of this machine."""
    disks = sorted(Path("/sys/block").glob("[nsv][vd]*/dev"))
    if not disks:
        pytest.skip("this machine has no disk")
    return disks[0].read_text().strip()
