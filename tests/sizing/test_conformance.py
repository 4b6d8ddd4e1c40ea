"""Every strategy that is installed does what a strategy must."""

from collections.abc import Callable
from importlib.util import find_spec

import pytest

from sizing.conformance import CHECKS
from trimtab.sizing import available


def _is_there(name: str) -> bool:
    return find_spec(f"trimtab.sizing.{name.replace('-', '_')}") is not None


@pytest.mark.parametrize("name", available())
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_strategy(name: str, check: Callable[[str], None]) -> None:
    if not _is_there(name):
        pytest.skip(f"trimtab.sizing has no module for {name} yet")
    check(name)
