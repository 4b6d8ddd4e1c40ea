"""Real cgroups of version 2, laid out as the kubelet does."""

from collections.abc import Iterator

import pytest

from harness.kubepods import Kubepods
from trimtab.node.cgroups import Version


@pytest.fixture
def kubepods() -> Iterator[Kubepods]:
    """An empty kubepods, with every controller."""
    with Kubepods.make() as made:
        assert made.hierarchy.version is Version.V2
        yield made
