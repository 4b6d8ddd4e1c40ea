"""The event loop that our programs run."""

import asyncio
from collections.abc import Callable

import pytest
import uvloop

Loops = dict[str, Callable[[], asyncio.AbstractEventLoop]]


def pytest_asyncio_loop_factories(item: pytest.Item) -> Loops:
    """Use Python's own loop only where a test speeds up time, which no other loop can."""
    if item.get_closest_marker("looptime"):
        return {"asyncio": asyncio.new_event_loop}
    return {"uvloop": uvloop.new_event_loop}
