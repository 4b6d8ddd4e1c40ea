"""Every strategy that is installed does what a strategy must."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sizing import conformance
from sizing.conformance import CHECKS
from trimtab.sizing import STRATEGIES

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "write-a-strategy.md"


@pytest.mark.parametrize("name", STRATEGIES.names())
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_strategy_conforms_to_the_contract(name: str, check: Callable[[str], None]) -> None:
    check(name)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_example_strategy_of_the_guide_conforms_to_the_contract(
    check: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    code = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)[0]
    names: dict[str, Any] = {"__name__": "guide"}
    exec(compile(code, str(GUIDE), "exec"), names)
    kind, settings = names["Highest"], names["HighestSettings"]
    monkeypatch.setattr(conformance, "strategy", lambda _, containers: kind(containers, settings()))
    check(f"guide {check.__name__}")  # by a name of its own, for what is kept from check to check goes by it
