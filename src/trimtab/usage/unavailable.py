"""Stand in for a usage source that cannot be built, so that it fails alone and others go on."""

from __future__ import annotations

from typing import Never

from trimtab.plugins import Settings
from trimtab.usage.errors import UsageError
from trimtab.usage.source import Capabilities, Progress, Source, SourceHealth, UsageQuery


class UnavailableSource(Source[Settings]):
    """Fails each read with the reason why the source could not be built."""

    name = "unavailable"
    settings_type = Settings
    capabilities = Capabilities(history=True)  # so that containers get their history once the source works

    def __init__(self, problem: str, *, advice: str) -> None:
        super().__init__(Settings())
        self._health = SourceHealth(ok=False, detail=problem, advice=advice)

    async def check(self) -> SourceHealth:
        return self._health

    async def estimate_cost(self, query: UsageQuery) -> Never:
        del query
        self._fail()

    async def read(self, query: UsageQuery, *, progress: Progress | None = None) -> Never:
        del query, progress
        self._fail()

    def _fail(self) -> Never:
        raise UsageError(f"{self._health.detail}; {self._health.advice}")
