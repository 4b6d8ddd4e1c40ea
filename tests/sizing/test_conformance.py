"""Every strategy that is installed does what a strategy must."""

from collections.abc import Callable

import pytest

from sizing.conformance import CHECKS
from trimtab.sizing import STRATEGIES


@pytest.mark.parametrize("name", STRATEGIES.names())
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_strategy(name: str, check: Callable[[str], None]) -> None:
    check(name)
