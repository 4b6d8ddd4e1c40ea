"""What the API server keeps, by its own keys: to copy stored objects many times as fast as they could be written."""

import base64
from typing import Any, Self

import aiohttp


class Etcd:
    """The store behind an API server; used as an async context manager."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(base_url=self._url)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, key: bytes) -> bytes:
        found = await self._ask("/v3/kv/range", key=key)
        return base64.b64decode(found["kvs"][0]["value"])

    async def put(self, key: bytes, value: bytes) -> None:
        """Store one object. One by one: what is put in one transaction would share one resource version."""
        await self._ask("/v3/kv/put", key=key, value=value)

    async def _ask(self, path: str, **content: bytes) -> Any:
        assert self._session is not None, "use it as `async with`"
        encoded = {name: base64.b64encode(value).decode() for name, value in content.items()}
        async with self._session.post(path, json=encoded) as answer:
            answer.raise_for_status()
            return await answer.json()
