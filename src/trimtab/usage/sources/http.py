"""Usage from anything that speaks a small protocol of ours over HTTP, in any language.

    GET URL/v1/health                                   {"ok": true, "detail": "…", "history": true}
    GET URL/v1/usage?start=…&end=…&step=…&namespaces=a,b
        {"start": …, "step": …, "containers": [["namespace", "pod", "container"], …],
         "cpu": [[…], …], "memory": [[…], …]}

`cpu` and `memory` have a list for each container with a number for each step, in cores and bytes, null where there is
no sample. Times are seconds since 1970; `start` and `step` come back as they were asked. Without `namespaces` all are
meant. A status other than 200 is a failure: 401 and 403 final, 429 and 5xx to be tried again, 413 too much asked.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self, TypeVar

import msgspec
import numpy as np
from pydantic import AfterValidator, Field
from yarl import URL

from trimtab.kube.auth import Connection
from trimtab.kube.auth.credential_sources import Kept
from trimtab.kube.auth.credentials import AtHand
from trimtab.kube.auth.tls import Trust
from trimtab.kube.errors import NOT_UNDERSTOOD
from trimtab.kube.rest.client import Client
from trimtab.plugins import Settings
from trimtab.usage.errors import BadAnswer, UsageError
from trimtab.usage.prometheus.endpoint import by_proxy
from trimtab.usage.prometheus.http_transport import Wire
from trimtab.usage.prometheus.settings import Headers
from trimtab.usage.source import Ask, Capabilities, Cost, Health, Progress, Source
from trimtab.usage.trace import Floats
from trimtab.usage.usage import MOST_BYTES, MOST_CORES, PodContainer, Usage, plausible

if TYPE_CHECKING:
    from trimtab.store import Store

T = TypeVar("T")

CLOSE = 0.001
"""Seconds: times are asked to the millisecond."""


def _address(text: str) -> str:
    url = URL(text)
    if url.scheme not in {"http", "https"} or not url.host or url.password:
        raise ValueError("must look like http://HOST:PORT, without a password")
    return str(url.with_query(None).with_fragment(None)).rstrip("/")


class HttpSettings(Settings):
    """Where the protocol is spoken, and who we are there."""

    url: Annotated[str, AfterValidator(_address)]
    """The address under which /v1/usage is."""

    token_file: Path | None = None
    """A file with a bearer token; read again when it changes."""

    ca_file: Path | None = None
    """The authority that vouches for the server, PEM; the system's if not given."""

    headers: Headers = Field(default_factory=dict)
    """Headers to send with every question."""

    timeout: Annotated[float, Field(gt=0)] = 60.0
    """Seconds that an answer may take."""

    bytes_an_answer: Annotated[int, Field(ge=1024)] = 512 << 20
    """The largest answer taken in."""


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
    """A server that speaks the protocol."""

    name = "http"
    settings_type = HttpSettings

    def __init__(
        self, settings: HttpSettings, *, client: Client | None = None, store: Store | None = None
    ) -> None:
        super().__init__(settings, client=client, store=store)
        self.capabilities = Capabilities(history=True)
        self._wire = Wire(
            _connection(settings),
            headers=settings.headers,
            timeout=settings.timeout,
            most_bytes=settings.bytes_an_answer,
        )

    async def __aenter__(self) -> Self:
        await self._wire.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._wire.__aexit__()

    async def check(self) -> Health:
        try:
            found = await self._wire.get("/v1/health", {}, lambda body: _decoded(body, _Health))
        except UsageError as error:
            return Health(
                ok=False, detail=str(error), advice="see the server's log; check url and token_file"
            )
        self.capabilities = Capabilities(history=found.history)
        detail = f"{self.settings.url}: {found.detail or ('well' if found.ok else 'not well')}"
        return Health(
            ok=found.ok, detail=" ".join(detail.split()), advice="" if found.ok else "see the server's log"
        )

    async def cost(self, ask: Ask) -> Cost:  # noqa: ARG002 - the protocol has no question for it
        return Cost(queries=1, series=0, samples=0, bytes=0)

    async def read(self, ask: Ask, *, progress: Progress | None = None) -> Usage:
        query = {"start": f"{ask.start:.3f}", "end": f"{ask.end:.3f}", "step": f"{ask.step:.3f}"}
        if ask.namespaces is not None:
            query["namespaces"] = ",".join(ask.namespaces)
        usage = await self._wire.get("/v1/usage", query, lambda body: _usage(_decoded(body, _Usage), ask))
        if progress is not None:
            progress(1.0)
        return usage


def _connection(settings: HttpSettings) -> Connection:
    authority = Kept(settings.ca_file, where="ca_file") if settings.ca_file else None
    token = Kept(settings.token_file, where="token_file") if settings.token_file else None
    return by_proxy(
        Connection(
            server=settings.url,
            context=settings.url,
            namespace="",
            credentials=AtHand(token=token),
            trust=Trust(authority) if settings.url.startswith("https:") else None,
        )
    )


def _decoded(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except NOT_UNDERSTOOD as error:
        raise BadAnswer(f"the answer is not of the protocol: {error}") from error


def _usage(said: _Usage, ask: Ask) -> Usage:
    """What was said, once it is known to be what was asked for."""
    if max(abs(said.start - ask.start), abs(said.step - ask.step)) > CLOSE:
        raise BadAnswer(
            f"the answer is of start {said.start} and step {said.step}, not {ask.start} and {ask.step}"
        )
    if len(set(said.containers)) != len(said.containers):
        raise BadAnswer("the answer names a container twice")
    wanted = None if ask.namespaces is None else set(ask.namespaces)
    chosen = [
        number
        for number, container in sorted(enumerate(said.containers), key=lambda pair: pair[1])
        if wanted is None or container.namespace in wanted
    ]
    return Usage(
        containers=tuple(said.containers[number] for number in chosen),
        start=ask.start,
        step=ask.step,
        cpu=_grid("cpu", said.cpu, said, ask, most=MOST_CORES)[:, chosen],
        memory=_grid("memory", said.memory, said, ask, most=MOST_BYTES)[:, chosen],
    )


def _grid(name: str, rows: list[list[float | None]], said: _Usage, ask: Ask, *, most: float) -> Floats:
    if len(rows) != len(said.containers) or any(len(row) != ask.steps for row in rows):
        raise BadAnswer(f"the answer's {name} is not a list for each container of {ask.steps} numbers")
    return plausible(np.array(rows, np.float64).reshape(len(rows), ask.steps).T.copy(), most=most)
