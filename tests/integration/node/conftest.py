"""Real cgroups of this machine, laid out as the kubelet does."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from harness import UnavailableError
from harness.cluster.kubepods import Kubepods


@pytest.fixture
def kubepods() -> Iterator[Kubepods]:
    """An empty kubepods."""
    with ExitStack() as stack:
        try:
            made = stack.enter_context(Kubepods.make())
        except (UnavailableError, OSError) as why:
            pytest.skip(f"no cgroups of our own on this machine: {why}")
        yield made
