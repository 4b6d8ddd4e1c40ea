"""Usage from any server that implements a small HTTP protocol.

    GET URL/v1/health                                   {"ok": true, "detail": "…", "history": true}
    GET URL/v1/usage?start=…&end=…&step=…&namespaces=a,b
        {"start": …, "step": …, "containers": [["namespace", "pod", "container"], …],
         "cpu": [[…], …], "memory": [[…], …]}

`cpu` and `memory` have a list per container with a number per step, in cores and bytes, null without a
sample. Times are seconds since 1970; `start` and `step` are returned as requested. Without `namespaces` all
are read. A status other than 200 is a failure: 401 and 403 are final, 429 and 5xx are retried, 413 means a
query that is too large.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self, TypeVar

import msgspec
import numpy as np
from pydantic import AfterValidator, Field
from yarl import URL

from trimtab.kube.auth import Connection
from trimtab.kube.auth.credential_sources import FileCredentialSource
from trimtab.kube.auth.credentials import LocalCredentialProvider
from trimtab.kube.auth.tls import Trust
from trimtab.kube.errors import DECODE_ERRORS
from trimtab.kube.rest.client import Client
from trimtab.plugins import Settings
from trimtab.usage.errors import UsageError, UsageResponseError
from trimtab.usage.http_client import UsageHttpClient
from trimtab.usage.prometheus.endpoint import with_environment_proxy
from trimtab.usage.prometheus.settings import Headers
from trimtab.usage.source import Capabilities, Cost, Progress, Source, SourceHealth, UsageQuery
from trimtab.usage.trace import Floats
from trimtab.usage.usage import MAX_BYTES, MAX_CORES, PodContainer, Usage, mask_implausible

if TYPE_CHECKING:
    from trimtab.store import Store

T = TypeVar("T")

TIME_TOLERANCE = 0.001
"""The tolerance in seconds; times are sent in milliseconds."""


def _validate_url(text: str) -> str:
    url = URL(text)
    if url.scheme not in {"http", "https"} or not url.host or url.password:
        raise ValueError("must look like http://HOST:PORT, without a password")
    return str(url.with_query(None).with_fragment(None)).rstrip("/")


class HttpSettings(Settings):
    """The address of the server, and the credentials for it."""

    url: Annotated[str, AfterValidator(_validate_url)]
    """The address under which /v1/usage is."""

    token_file: Path | None = None
    """A file with a bearer token; it is reread when it changes."""

    ca_file: Path | None = None
    """The CA certificate of the server, PEM; by default the system's CAs."""

    headers: Headers = Field(default_factory=dict)
    """Headers to send with every request."""

    timeout: Annotated[float, Field(gt=0)] = 60.0
    """The timeout of a response in seconds."""

    bytes_an_answer: Annotated[int, Field(ge=1024)] = 512 << 20
    """The maximum size of a response in bytes."""


class _Health(msgspec.Struct):
    ok: bool
    detail: str = ""
    history: bool = True


class _Usage(msgspec.Struct):
    start: float
    step: float
    containers: list[PodContainer]
    cpu: list[list[float | None]]
    memory: list[list[float | None]]


class Http(Source[HttpSettings]):
    """A server that implements the protocol."""

    name = "http"
    settings_type = HttpSettings

    def __init__(
        self, settings: HttpSettings, *, client: Client | None = None, store: Store | None = None
    ) -> None:
        super().__init__(settings, client=client, store=store)
        self.capabilities = Capabilities(history=True)
        self._transport = UsageHttpClient(
            _build_connection(settings),
            headers=settings.headers,
            timeout=settings.timeout,
            max_response_bytes=settings.bytes_an_answer,
        )

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._transport.__aexit__()

    async def check(self) -> SourceHealth:
        try:
            found = await self._transport.get("/v1/health", {}, lambda body: _decode(body, _Health))
        except UsageError as error:
            return SourceHealth(
                ok=False, detail=str(error), advice="check url and token_file, and see the server's log"
            )
        self.capabilities = Capabilities(history=found.history)
        detail = f"{self.settings.url}: {found.detail or ('healthy' if found.ok else 'not healthy')}"
        return SourceHealth(
            ok=found.ok, detail=" ".join(detail.split()), advice="" if found.ok else "see the server's log"
        )

    async def estimate_cost(self, query: UsageQuery) -> Cost:  # noqa: ARG002 - the protocol has no estimate
        return Cost(queries=1, series=0, samples=0, bytes=0)

    async def read(self, ask: UsageQuery, *, progress: Progress | None = None) -> Usage:
        query = {"start": f"{ask.start:.3f}", "end": f"{ask.end:.3f}", "step": f"{ask.step:.3f}"}
        if ask.namespaces is not None:
            query["namespaces"] = ",".join(ask.namespaces)
        usage = await self._transport.get(
            "/v1/usage", query, lambda body: _build_usage(_decode(body, _Usage), ask)
        )
        if progress is not None:
            progress(1.0)
        return usage


def _build_connection(settings: HttpSettings) -> Connection:
    authority = FileCredentialSource(settings.ca_file, where="ca_file") if settings.ca_file else None
    token = FileCredentialSource(settings.token_file, where="token_file") if settings.token_file else None
    return with_environment_proxy(
        Connection(
            server=settings.url,
            context=settings.url,
            namespace="",
            credentials=LocalCredentialProvider(token=token),
            trust=Trust(authority) if settings.url.startswith("https:") else None,
        )
    )


def _decode(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except DECODE_ERRORS as error:
        raise UsageResponseError(f"the response does not follow the protocol: {error}") from error


def _build_usage(response: _Usage, query: UsageQuery) -> Usage:
    """Build usage after checking that the response matches the query."""
    if max(abs(response.start - query.start), abs(response.step - query.step)) > TIME_TOLERANCE:
        raise UsageResponseError(
            f"the response has start {response.start} and step {response.step} instead of {query.start} and {query.step}"
        )
    if len(set(response.containers)) != len(response.containers):
        raise UsageResponseError("the response names a container twice")
    wanted = None if query.namespaces is None else set(query.namespaces)
    chosen = [
        number
        for number, container in sorted(enumerate(response.containers), key=lambda pair: pair[1])
        if wanted is None or container.namespace in wanted
    ]
    return Usage(
        containers=tuple(response.containers[number] for number in chosen),
        start=query.start,
        step=query.step,
        cpu=_build_grid("cpu", response.cpu, response, query, maximum=MAX_CORES)[:, chosen],
        memory=_build_grid("memory", response.memory, response, query, maximum=MAX_BYTES)[:, chosen],
    )


def _build_grid(
    name: str, rows: list[list[float | None]], response: _Usage, query: UsageQuery, *, maximum: float
) -> Floats:
    if len(rows) != len(response.containers) or any(len(row) != query.steps for row in rows):
        raise UsageResponseError(
            f"{name} in the response must have a list of {query.steps} numbers per container"
        )
    return mask_implausible(
        np.array(rows, np.float64).reshape(len(rows), query.steps).T.copy(), maximum=maximum
    )
