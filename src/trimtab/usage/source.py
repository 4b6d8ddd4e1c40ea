"""The contract of a usage source: which containers used how much, over a window of time or now.

A source only reads. It says what it can know (`capabilities`), whether it is well (`check`) and what a read would cost
its server (`cost`) before the read is made. What it gives is never a guess: a sample that it cannot trust is NaN, and
an answer that it cannot read is a `UsageError`. Sources come in by the entry point group `trimtab.sources`, ours and
others' alike.

    async with source("prometheus", client=client, url="http://prometheus:9090") as history:
        ask = Ask.last(14 * DAY, now=time.time(), step=60)
        print(await history.cost(ask))
        usage = await history.read(ask)
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from trimtab.errors import TrimtabError
from trimtab.kube.rest.client import Client
from trimtab.plugins import Family, Settings
from trimtab.plural import pluralize
from trimtab.usage.usage import Usage, UsageSummary, summarize_usage

if TYPE_CHECKING:  # SQLAlchemy takes half a second, and most who read usage keep none
    from trimtab.store import Store

S = TypeVar("S", bound=Settings)

Progress = Callable[[float], None]
"""Called now and then during a read with the share that is done, 0 to 1."""

QUANTILES = (0.5, 0.9, 0.99)
MAX_STEPS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageQuery:
    """What is asked: the steps from `start` up to, not including, `end`; seconds since 1970."""

    start: float
    end: float
    step: float
    namespaces: tuple[str, ...] | None = None
    """None for all."""
    include_ooms: bool = True
    """Whether anybody wants to know of kills, which a server may have to look for in all that it has."""

    def __post_init__(self) -> None:
        if not self.step > 0:
            raise TrimtabError(f"step: {self.step:g} s is no step; give at least a second")
        if not self.start < self.end:
            raise TrimtabError(f"end: {self.end:g} is not after the start, {self.start:g}")
        if self.steps > MAX_STEPS:
            raise TrimtabError(f"step: {self.step:g} s makes {self.steps:,} steps; give a longer one")

    @classmethod
    def last(
        cls, seconds: float, *, now: float, step: float, namespaces: Sequence[str] | None = None
    ) -> Self:
        """The window up to now, on whole steps: so that two reads of the same time have the same grid."""
        end = now // step * step + step
        steps = max(1, round(seconds / step))
        return cls(
            start=end - steps * step,
            end=end,
            step=step,
            namespaces=None if namespaces is None else tuple(namespaces),
        )

    @property
    def steps(self) -> int:
        return max(1, math.ceil((self.end - self.start) / self.step - 1e-6))


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a source can know."""

    history: bool
    """Whether it knows the past; if not, a read gives the step of now alone."""
    polled: bool = False
    """Whether that past is of its own making, and begins when it is opened. A step of it is what was measured from its
    beginning to its end,"""
    publish_delay: float = 0.0
    """and known so many seconds after that."""
    throttling: bool = False
    ooms: bool = False
    atomic_steps: bool = False
    """Whether a step in which a container has a sample has all of them. Else samples of it may still be on their way, until a
    later step has one."""


@dataclass(frozen=True, slots=True)
class SourceHealth:
    """Whether a source can be read now."""

    ok: bool
    detail: str
    """One line: what was found."""
    advice: str = ""
    """What to do about it when it is not well."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a read asks of a server; an estimate, shown before a big one."""

    queries: int
    series: int
    samples: int
    """That come back: the server reads more to make them."""
    bytes: int

    def __str__(self) -> str:
        return (
            f"{pluralize(self.queries, 'query', 'queries')}, {self.series:,} series, {pluralize(self.samples, 'sample')}, "
            f"about {self.bytes / 1e6:,.0f} MB"
        )


class Source(ABC, Generic[S]):
    """Reads usage from somewhere. Used as an async context manager: some keep connections open."""

    name: ClassVar[str]
    """What users call it."""

    settings_type: ClassVar[type[Any]]

    capabilities: Capabilities
    """What it can know; a source that learns this from its server has it after `check` or the first read."""

    def __init__(self, settings: S, *, client: Client | None = None, store: Store | None = None) -> None:
        self.settings = settings
        self.client = client
        """The cluster that the usage is of; a source that cannot do without it says so."""
        self.store = store
        """Where a source that only knows the present may keep what it saw."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    @abstractmethod
    async def check(self) -> SourceHealth:
        """Whether it can be read now. Never raises a `UsageError`: what is wrong is the answer."""

    @abstractmethod
    async def estimate_cost(self, query: UsageQuery) -> Cost:
        """What `read` would cost. Cheap itself."""

    @abstractmethod
    async def read(self, query: UsageQuery, *, progress: Progress | None = None) -> Usage:
        """The samples asked for, on exactly the grid of `ask`; any failure is a `UsageError`.

        A source of the present alone gives its sample in the step in which now lies, or none.
        """

    async def summarize(
        self, query: UsageQuery, *, quantiles: Sequence[float] = QUANTILES, progress: Progress | None = None
    ) -> UsageSummary:
        """Quantiles, sample count, first and last time of each container."""
        return summarize_usage(await self.read(query, progress=progress), quantiles)


SOURCES: Family[Source[Any]] = Family(noun="usage source", group="trimtab.sources")


def source(
    name: str, *, client: Client | None = None, store: Store | None = None, **settings: Any
) -> Source[Any]:
    """A source of this name; settings not given have their defaults."""
    kind = SOURCES.load_type(name)
    return kind(SOURCES.parse_settings(name, settings), client=client, store=store)
