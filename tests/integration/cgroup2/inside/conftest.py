"""Real cgroups of version 2, laid out as the kubelet does."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import trimtab

# What nothing here needs takes an emulated processor half a minute to import: all kinds with their schemas, where quantities
# would do, and what makes logs colourful.
kinds = ModuleType("trimtab.api")
kinds.__path__ = [str(Path(trimtab.__file__).with_name("api"))]
sys.modules |= {"trimtab.api": kinds, "rich": None}  # type: ignore[dict-item] # as Python represents a missing module

from harness.cluster.kubepods import Kubepods  # noqa: E402 - only now
from trimtab.node.cgroups import CgroupVersion  # noqa: E402


@pytest.fixture
def kubepods() -> Iterator[Kubepods]:
    """An empty kubepods, with every controller."""
    with Kubepods.make() as made:
        assert made.hierarchy.version is CgroupVersion.V2
        yield made
