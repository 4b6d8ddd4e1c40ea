"""The interface of a usage source: the usage of containers over a time window or now.

A source only reads. It declares what it provides (`capabilities`), whether it is healthy (`check`) and the
cost of a read (`estimate_cost`). It never guesses: an untrusted sample is NaN, and an unreadable response is
a `UsageError`. Sources are entry points of the group `trimtab.sources`.

    async with source("prometheus", client=client, url="http://prometheus:9090") as history:
        query = UsageQuery.last(14 * DAY, now=time.time(), step=60)
        print(await history.estimate_cost(query))
        usage = await history.read(query)
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeVar

from trimtab.errors import TrimtabError
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.rbac import RbacRule
from trimtab.plugins import Family, Settings
from trimtab.plural import pluralize
from trimtab.usage.usage import Usage

if TYPE_CHECKING:  # importing SQLAlchemy takes half a second
    from trimtab.store import Store

S = TypeVar("S", bound=Settings)

Progress = Callable[[float], None]
"""A callback that receives the completed share of a read, 0 to 1."""

Vector = Sequence[tuple[Mapping[str, str], float]]
"""The labels and value of each series of an instant query."""

MAX_STEPS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageQuery:
    """A request for the steps from `start` up to, not including, `end`, in seconds since 1970."""

    start: float
    end: float
    step: float
    namespaces: tuple[str, ...] | None = None
    """The namespaces to read; None for all."""
    include_ooms: bool = True
    """Read OOM kills, which a server may have to search for in all its series."""
    rate_window: float = 0.0
    """The seconds over which CPU is averaged, in which a source should have two samples; 0 if the source decides."""

    def __post_init__(self) -> None:
        if not self.step > 0:
            raise TrimtabError(f"step: {self.step:g} s is not positive; use at least one second")
        if not self.start < self.end:
            raise TrimtabError(f"end: {self.end:g} must be after the start, {self.start:g}")
        if self.steps > MAX_STEPS:
            raise TrimtabError(f"step: {self.step:g} s gives {self.steps:,} steps; use a longer step")

    @classmethod
    def last(
        cls,
        seconds: float,
        *,
        now: float,
        step: float,
        namespaces: Sequence[str] | None = None,
        rate_window: float = 0.0,
    ) -> Self:
        """Return the window up to now, aligned to steps so that repeated reads share a grid."""
        end = now // step * step + step
        steps = max(1, round(seconds / step))
        return cls(
            start=end - steps * step,
            end=end,
            step=step,
            namespaces=None if namespaces is None else tuple(namespaces),
            rate_window=rate_window,
        )

    @property
    def steps(self) -> int:
        return max(1, math.ceil((self.end - self.start) / self.step - 1e-6))


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The data that a source provides."""

    history: bool
    """The source has history; if not, a read returns only the current step."""
    final_after: float | None = None
    """The seconds after the end of a step until its samples are final; None if they may arrive any time later."""
    throttling: bool = False
    ooms: bool = False
    atomic_steps: bool = False
    """A container's step has all of its samples or none.

    Otherwise samples may still arrive until a later step has one.
    """
    interval: float = 0.0
    """The seconds from one sample of a container to the next; 0 if unknown."""


@dataclass(frozen=True, slots=True)
class SourceHealth:
    """The result of a check of a source."""

    ok: bool
    detail: str
    """One line that describes the finding."""
    advice: str = ""
    """The remedy if the source is not healthy."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The estimated load of a read on a server, shown before a large one."""

    queries: int
    series: int
    samples: int
    """The number of returned samples; the server reads more to compute them."""
    bytes: int

    def __str__(self) -> str:
        return (
            f"{pluralize(self.queries, 'query', 'queries')}, {self.series:,} series, {pluralize(self.samples, 'sample')}, "
            f"about {self.bytes / 1e6:,.0f} MB"
        )


class PromqlClient(Protocol):
    """A client that evaluates PromQL."""

    async def vector(self, promql: str, *, at: float) -> Vector:
        """Return all samples of an instant query, each with its labels."""
        ...


async def query_value(client: PromqlClient, promql: str, *, at: float) -> float | None:
    """Return the single value of a query at a time; None if it has no or several values."""
    found = await client.vector(promql, at=at)
    return found[0][1] if len(found) == 1 else None


class Source(ABC, Generic[S]):
    """Reads usage from a backend. Used as an async context manager, because some keep connections."""

    name: ClassVar[str]
    """The name that users configure."""

    settings_type: ClassVar[type[Any]]

    rules: ClassVar[tuple[RbacRule, ...]] = ()
    """The permissions that the source needs in the measured cluster when it runs in a pod there."""

    capabilities: Capabilities = Capabilities(history=True)
    """The provided data; a source that detects it has it after `check` or the first read.

    Until then history is assumed, so that new containers wait for theirs.
    """

    def __init__(self, settings: S, *, client: Client | None = None, store: Store | None = None) -> None:
        self.settings = settings
        self.client = client
        """The client of the cluster that is measured; None if there is none."""
        self.store = store
        """The store in which a polling source may keep its history."""

    @classmethod
    def shortest_step(cls, settings: S) -> float:
        """Return the seconds below which a step would often have no sample; 0 if the source fits any step."""
        del settings
        return 0.0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    @abstractmethod
    async def check(self) -> SourceHealth:
        """Check the source; a problem is returned and never raised as a `UsageError`."""

    @abstractmethod
    async def estimate_cost(self, query: UsageQuery) -> Cost:
        """Estimate the cost of `read`, cheaply."""

    @abstractmethod
    async def read(self, query: UsageQuery, *, progress: Progress | None = None) -> Usage:
        """Read the samples on exactly the grid of `query`; raise `UsageError` on any failure.

        A source without history returns its sample in the last step, or none.
        """

    @property
    def promql(self) -> PromqlClient | None:
        """The client for other queries than usage; None if the backend does not evaluate PromQL."""
        return None

    async def has_usage(self, *, at: float) -> bool | None:
        """Return whether there were any container samples at a time; None if only a read can tell."""
        del at
        return None


SOURCES: Family[Source[Any]] = Family(noun="usage source", group="trimtab.sources")


def source(
    name: str, *, client: Client | None = None, store: Store | None = None, **settings: Any
) -> Source[Any]:
    """Create the source of this name; omitted settings have their defaults."""
    kind = SOURCES.load_type(name)
    return kind(SOURCES.parse_settings(name, settings), client=client, store=store)
