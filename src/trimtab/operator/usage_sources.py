"""Open the usage sources of the configuration, and those that policies of the operator's namespace name a Secret for."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from trimtab.kube.rest.client import Client
from trimtab.operator.config.model import OperatorConfig
from trimtab.store import Store
from trimtab.usage.source import Source, source


class UsageSources(dict[str, Source[Any]]):
    """The sources by the names that `OperatorConfig.resolve_source` returns; `async with` opens and closes them.

    A source with the Secret of a policy is built at its first use.
    """

    def __init__(self, config: OperatorConfig, *, client: Client, store: Store) -> None:
        super().__init__()
        self._config = config
        self._client = client
        self._store = store

    def __missing__(self, name: str) -> Source[Any]:
        given = self._config.find_source(name)
        found = self[name] = source(given.provider, client=self._client, store=self._store, **given.settings)
        return found

    async def __aenter__(self) -> Self:
        for name in self._config.sources:
            await self[name].__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self.values():
            await each.__aexit__(kind, error, trace)
