"""Drive Debian's Chromium with Playwright and record each error of a page."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import Browser, ConsoleMessage, Error, Page, Request, async_playwright

from harness import packages

CHROMIUM = "/usr/bin/chromium"
INTERRUPTED = "net::ERR_NETWORK_CHANGED"
"""Chromium drops what it asks for when an interface of this machine comes or goes, as those of pods on the node do."""


@dataclass
class ObservedPage:
    """A page, and what it should not have done."""

    page: Page
    url: str
    errors: list[str] = field(default_factory=list)
    """Errors on its console and uncaught exceptions."""
    strangers: list[str] = field(default_factory=list)
    """Requests to anywhere but the dashboard."""
    _whole: bool = True
    """True if no request of the last visited page was dropped."""

    async def visit(self, path: str) -> None:
        """Go there, until it comes whole: without one of its scripts a page is live and does nothing."""
        before = len(self.errors)
        while True:
            self._whole = True
            try:
                await self.page.goto(self.url + path)
            except Error as error:
                if INTERRUPTED not in error.message:
                    raise
            else:
                if self._whole:
                    return
            del self.errors[before:]  # of a page that came in part

    def _record_console(self, message: ConsoleMessage) -> None:
        if message.type == "error" and INTERRUPTED not in message.text:
            self.errors.append(message.text)

    def _record_failure(self, request: Request) -> None:
        self._whole &= request.failure != INTERRUPTED

    def _record_request(self, request: Request) -> None:
        if urlsplit(request.url).netloc != urlsplit(self.url).netloc:
            self.strangers.append(request.url)


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """Chromium without a window."""
    packages.install("chromium")
    async with async_playwright() as playwright:
        found = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield found
        finally:
            await found.close()


@asynccontextmanager
async def observe_page(on: Browser, url: str, **context: Any) -> AsyncIterator[ObservedPage]:
    """Open a page with its own cookies on the dashboard at this URL."""
    own = await on.new_context(viewport={"width": 1360, "height": 900}, **context)
    page = await own.new_page()
    found = ObservedPage(page, url)
    page.on("console", found._record_console)
    page.on("pageerror", lambda error: found.errors.append(str(error)))
    page.on("request", found._record_request)
    page.on("requestfailed", found._record_failure)
    try:
        yield found
    finally:
        await own.close()
