"""Cgroups of a fake kernel; tests/integration/node gives the same tests those of this machine."""

from pathlib import Path

import pytest

from node.cgroup_port import Cgroups
from trimtab.node.cgroups import CgroupVersion
from trimtab.testing import FakeCgroupTree


@pytest.fixture(params=[CgroupVersion.V1, CgroupVersion.V2], ids=["v1", "v2"])
def cgroups(request: pytest.FixtureRequest, tmp_path: Path) -> Cgroups:
    return FakeCgroupTree(tmp_path / "cgroup", request.param)


@pytest.fixture
def v1_cgroups(tmp_path: Path) -> Cgroups:
    return FakeCgroupTree(tmp_path / "cgroup", CgroupVersion.V1)


@pytest.fixture
def device() -> str:
    """Return a block device that can be throttled."""
    return "8:0"
