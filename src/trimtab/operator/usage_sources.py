"""Open the usage sources of the configuration, and those that policies of the operator's namespace name a Secret for."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AsyncExitStack, suppress
from typing import Any, Self

from trimtab.errors import TrimtabError
from trimtab.kube.rest.client import Client
from trimtab.operator.config.model import SECRET_SEPARATOR, OperatorConfig
from trimtab.recommender.recommender import DEFAULT_SOURCE
from trimtab.store import Store
from trimtab.usage.source import Source, source
from trimtab.usage.unavailable import UnavailableSource


class UsageSources(dict[str, Source[Any]]):
    """The sources by the names that `OperatorConfig.resolve_source` returns; `async with` opens those of the configuration.

    A source with the Secret of a policy is built at its first use; the recommender opens it, and closes it when no policy
    names the Secret any more. Of those besides the default source, one that cannot be built fails at each read instead.
    """

    def __init__(self, config: OperatorConfig, *, client: Client, store: Store) -> None:
        super().__init__()
        self._config = config
        self._client = client
        self._store = store
        self._open: set[str] = set()

    def __missing__(self, name: str) -> Source[Any]:
        given = self._config.find_source(name)
        try:
            found = source(given.provider, client=self._client, store=self._store, **given.settings)
        except Exception as error:
            if name == DEFAULT_SOURCE:
                raise
            found = _stand_in(name, error)
        self[name] = found
        return found

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opened:
            opened.push_async_callback(self._close_all)
            await self.open(DEFAULT_SOURCE)
            for name in self._config.sources:
                # The leader opens it again in each cycle, and reports why that fails.
                with suppress(Exception):
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


def _stand_in(name: str, error: Exception) -> UnavailableSource:
    """Return a source that fails with the error by which a source could not be built."""
    given, _, secret = name.partition(SECRET_SEPARATOR)
    why = str(error) if isinstance(error, TrimtabError) else repr(error)
    return UnavailableSource(
        f"the usage source {given}{f' with Secret {secret}' if secret else ''} cannot be used: {why}",
        advice=f"correct {f'the keys of Secret {secret}, or ' if secret else ''}the source's settings, "
        "and restart the operator",
    )
