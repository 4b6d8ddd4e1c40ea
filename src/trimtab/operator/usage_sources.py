"""Open the usage sources of the configuration, and those that policies of the operator's namespace name a Secret for."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AsyncExitStack
from typing import Any, Self

from trimtab.kube.rest.client import Client
from trimtab.operator.config.model import OperatorConfig
from trimtab.store import Store
from trimtab.usage.source import Source, source


class UsageSources(dict[str, Source[Any]]):
    """The sources by the names that `OperatorConfig.resolve_source` returns; `async with` opens those of the configuration.

    A source with the Secret of a policy is built at its first use; the recommender opens it, and closes it when no policy
    names the Secret any more.
    """

    def __init__(self, config: OperatorConfig, *, client: Client, store: Store) -> None:
        super().__init__()
        self._config = config
        self._client = client
        self._store = store
        self._open: set[str] = set()

    def __missing__(self, name: str) -> Source[Any]:
        given = self._config.find_source(name)
        found = self[name] = source(given.provider, client=self._client, store=self._store, **given.settings)
        return found

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opened:
            opened.push_async_callback(self._close_all)
            for name in self._config.sources:
                await self.open(name)
            opened.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close_all()

    @property
    def configured(self) -> Collection[str]:
        """The names of the configuration's sources, which are never removed."""
        return self._config.sources

    async def open(self, name: str) -> None:
        """Open a source, unless it is open."""
        if name not in self._open:
            await self[name].__aenter__()
            self._open.add(name)

    async def close(self, name: str) -> None:
        """Close a source and forget it; its next use builds it again."""
        found = self.pop(name, None)
        if found is not None and name in self._open:
            self._open.remove(name)
            await found.__aexit__(None, None, None)

    async def _close_all(self) -> None:
        async with AsyncExitStack() as closing:  # closes each source, also after one that fails
            for name in list(self):
                closing.push_async_callback(self.close, name)
