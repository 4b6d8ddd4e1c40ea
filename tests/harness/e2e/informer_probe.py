"""Record what an informer's handlers get, and check it as it comes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from trimtab.kube.auth import load_connection
from trimtab.kube.cache.informer import Informer, Scope, WatchTimeouts
from trimtab.kube.cache.projection import CachedObject
from trimtab.kube.kinds.metadata import Metadata, metadata_projection
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.resources import CONFIG_MAPS
from trimtab.kube.rest.retry import RateLimiter
from trimtab.timing import Backoff

HASTY = WatchTimeouts(idle_timeout=2.0, backoff=Backoff(first=0.05, ceiling=0.2))


@dataclass
class InformerProbe:
    """A handler that checks that no event is missed and none goes back in time."""

    known: dict[str, CachedObject] = field(default_factory=dict)
    newest: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    deletions: int = 0

    def __call__(self, old: CachedObject | None, new: CachedObject | None, /) -> None:
        record = new or old
        assert record is not None
        if self.known.get(record.name) is not old:
            self.faults.append(f"{record.name}: got a change from a version it never saw")
        if new is None:
            self.deletions += 1
            self.known.pop(record.name, None)
            return
        if new.version <= self.newest.get(new.name, 0):
            self.faults.append(f"{new.name}: version {new.version} after {self.newest[new.name]}")
        self.newest[new.name] = new.version
        self.known[new.name] = new


@asynccontextmanager
async def watching(
    kubeconfig: Path, namespace: str, *, patience: WatchTimeouts = HASTY, timeout: float = 30.0
) -> AsyncIterator[tuple[Informer[Metadata], InformerProbe]]:
    connection = load_connection(kubeconfig=kubeconfig)
    async with Client(connection, rate=RateLimiter(1000, 1000), timeout=timeout) as client:
        informer = Informer(
            client,
            CONFIG_MAPS,
            metadata_projection(),
            scope=Scope(
                namespace=namespace, labels="!kubernetes.io/hidden", fields="metadata.name!=kube-root-ca.crt"
            ),
            timeouts=patience,
        )
        probe = InformerProbe()
        informer.cache.on_change(probe)
        following = asyncio.create_task(informer.run())
        try:
            yield informer, probe
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError):  # and nothing else: what ended it before is a fault
                await following


async def eventually(true: Callable[[], bool], *, what: str, seconds: float = 60.0) -> None:
    try:
        async with asyncio.timeout(seconds):
            while not true():
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail(f"never: {what}")
