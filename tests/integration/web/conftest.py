"""A browser for the tests of a file, which share an event loop for it."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from harness import UnavailableError
from harness.peers.browser import browser as chromium

expect.set_options(timeout=60_000)  # a busy machine draws late; what never comes fails all the same


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    """Chromium, or a skip that says why there is none."""
    try:
        async with chromium() as found:
            yield found
    except UnavailableError as why:
        pytest.skip(str(why))
