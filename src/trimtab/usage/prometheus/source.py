"""Usage from whatever speaks Prometheus' query API: Prometheus, Thanos, Mimir, VictoriaMetrics.

First it is looked what the server holds (`holdings`), which costs it little; then come the queries (`scheme`), cut by
namespace and time to what it will answer (`parts`, `asking`).
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from sys import intern
from typing import TYPE_CHECKING

import numpy as np

from trimtab.aio import side_by_side
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.retry import Backoff
from trimtab.plural import counted
from trimtab.usage.errors import BadAnswer, SourceRefused, UsageError
from trimtab.usage.prometheus.api import Server
from trimtab.usage.prometheus.columns import Columns, events
from trimtab.usage.prometheus.endpoint import Way, ways_to
from trimtab.usage.prometheus.http_transport import Wire
from trimtab.usage.prometheus.inventory import ADVICE, Holdings, Look, Memory
from trimtab.usage.prometheus.pod_selector import Pods
from trimtab.usage.prometheus.promql import all_equal, selector
from trimtab.usage.prometheus.query_scheduler import Patience
from trimtab.usage.prometheus.remote_read import sample_reader
from trimtab.usage.prometheus.remote_read.sample_reader import Raw, Rows
from trimtab.usage.prometheus.response import Grid, Indices, Series, first, samples
from trimtab.usage.prometheus.response import Rows as RowNumbers
from trimtab.usage.prometheus.schema import CPU, KINDS, MEMORY, SCRAPES, Kind, Labels, Question, Window
from trimtab.usage.prometheus.settings import PrometheusSettings
from trimtab.usage.prometheus.sharding import Part, parts_of
from trimtab.usage.source import Ask, Capabilities, Cost, Health, Progress, Source
from trimtab.usage.trace import Floats
from trimtab.usage.usage import Oom, PodContainer, Usage

if TYPE_CHECKING:
    from trimtab.store import Store

BYTES_A_SAMPLE = 28
BYTES_A_SERIES = 150
MOST_KILLS = 1e9
ROUNDING = 1e-6
LATELY = 600.0
MUCH_LONGER = 1.8
"""Times the usual interval; what comes less late has missed a scrape or two."""
WORTH_RAW = 32
"""Steps from which on raw samples cost a server less than a query."""


class Prometheus(Source[PrometheusSettings]):
    """A PromQL server; its settings say how to reach it."""

    name = "prometheus"
    settings_type = PrometheusSettings
    capabilities = Capabilities(history=True, throttling=True, ooms=True)

    def __init__(
        self,
        settings: PrometheusSettings,
        *,
        client: Client | None = None,
        store: Store | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        super().__init__(settings, client=client, store=store)
        self._patience = Patience(
            free=asyncio.Semaphore(settings.concurrency),
            retries=settings.retries,
            backoff=backoff or Backoff(first=0.5),
            rng=random.Random(),  # noqa: S311 - jitter
        )
        self._wire: Wire | None = None
        self._memory = Memory()
        self._raw_samples = settings.raw_samples
        self._finding = asyncio.Lock()

    async def __aexit__(self, *_: object) -> None:
        if self._wire is not None:
            await self._wire.__aexit__()
            self._wire = None

    async def check(self) -> Health:
        """Whether it answers, and has samples of containers of the last ten minutes."""
        grid = Grid(time.time() - LATELY, LATELY, 2)
        try:
            server = await self._server(grid)
            held = await self._look(server, grid, None, self._hasty())
            longest = await Look(server, self._hasty(), self.settings, grid).longest_interval(held.scheme)
        except UsageError as error:
            said, _, advice = str(error).rpartition("; ")
            return Health(ok=False, detail=said or advice, advice=advice if said else "")
        scheme = held.scheme
        if not scheme.cpu:
            missing = f"{server.address}: {self.settings.cpu_rule or CPU} is not there"
            return Health(ok=False, detail=missing, advice=ADVICE)
        knows = [
            word for word, known in (("throttling", scheme.throttling), ("OOM kills", scheme.ooms)) if known
        ]
        containers = sum(held.series.values())
        within = counted(len(held.series), "namespace")
        detail = f"{server.address}: {counted(containers, 'container')} in {within}, a sample every {held.interval:.0f} s"
        detail += f"; knows {', '.join(['CPU', 'memory', *knows])}; by the labels {' and '.join(each.key for each in scheme.labels)}"
        if longest and longest >= MUCH_LONGER * held.interval:
            detail += f"; of some containers only every {longest:.0f} s"
        return Health(ok=True, detail=detail)

    async def cost(self, ask: Ask) -> Cost:
        """By the containers that are there at a few moments of the window: pods that come and go add to it."""
        grid = _grid(ask)
        held = await self._look(await self._server(grid), grid, ask.namespaces)
        questions = self._questions(held, self._window(held, ask))
        queries = len(self._parts(held, ask)) * len(questions)
        # Kills are rare: what they add is in the queries, not in the samples.
        kinds = len({question.kind for question in questions} - {"oom"})
        series = sum(held.series.values()) * kinds
        size = series * (ask.steps * BYTES_A_SAMPLE + BYTES_A_SERIES)
        return Cost(queries=queries, series=series, samples=series * ask.steps, bytes=size)

    async def read(self, ask: Ask, *, progress: Progress | None = None) -> Usage:
        """See `Source.read`."""
        grid = _grid(ask)
        server = await self._server(grid)
        held = await self._look(server, grid, ask.namespaces)
        window = self._window(held, ask)
        wanted = KINDS if ask.kills else KINDS - {"oom"}
        columns = await self._columns(server, held, ask, window, only=wanted, progress=progress)
        if not self.settings.cpu_rule:
            seldom = columns["cpu"].much_less_than(columns["memory"])
            columns["cpu"].without_edges(window.partly(ask.step))
            await self._look_further_back(server, held, ask, window, seldom, columns)
        return _usage(columns, grid, ooms=_kills(columns.get("oom"), ask, window))

    async def _look_further_back(
        self,
        server: Server,
        held: Holdings,
        ask: Ask,
        window: Window,
        seldom: set[PodContainer],
        columns: dict[Kind, Columns],
    ) -> None:
        """Have the rates of those that are scraped so seldom that the window has no two samples of them over a wider one.

        Whoever is new has few rates too; which of them are scraped less often is found out first.
        """
        if not seldom:
            return
        look = Look(server, self._patience, self.settings, _grid(ask))
        pods = Pods(tuple(sorted({container.namespace for container in seldom})))
        slow = await look.seldom(held.scheme, pods, least=MUCH_LONGER * window.rate / SCRAPES)
        slow = {container: interval for container, interval in slow.items() if container in seldom}
        if not slow:
            return
        wider = Window.of(step=ask.step, interval=max(slow.values()))
        namespaces = sorted({container.namespace for container in slow})
        theirs = replace(held, series={name: held.series.get(name, 1) for name in namespaces})
        found = await self._columns(server, theirs, ask, wider, only=frozenset({"cpu", "throttled"}))
        found["cpu"].without_edges(wider.partly(ask.step))
        for kind, rates in found.items():
            columns[kind].take_over(rates, seldom)

    async def _columns(
        self,
        server: Server,
        held: Holdings,
        ask: Ask,
        window: Window,
        *,
        only: frozenset[Kind],
        progress: Progress | None = None,
    ) -> dict[Kind, Columns]:
        """All that the server answers for what it holds, looking back so far at each step."""
        questions = [question for question in self._questions(held, window) if question.kind in only]
        asked_of = {
            question.kind: _earlier(ask, window) if question.kind == "oom" else ask for question in questions
        }
        columns = {
            kind: Columns(
                theirs.steps,
                most=_most(kind, held),
                expected=0 if kind == "oom" else sum(held.series.values()),
            )
            for kind, theirs in asked_of.items()
        }
        names: dict[PodContainer, PodContainer] = {}  # each once, though every question is answered with them
        done, whole = 0, sum(map(held.weight, self._parts(held, ask))) * len(questions)
        samples_of = Raw(server, held.scheme, window, _grid(ask))

        async def answer(question: Question, part: Part, *, asked: bool = True) -> None:
            nonlocal done
            into = columns[question.kind]
            if asked:
                grid = _grid(asked_of[question.kind])
                await _take(server, question, part, grid=grid, names=names, into=into)
            else:
                rows = await samples_of.rows(question.kind, question.labels, part)
                _lay(rows, question, part, names=names, into=into)
            done += held.weight(part)
            if progress:
                progress(min(1.0, done / whole))

        async def ask_for(question: Question) -> None:
            if (
                ask.steps >= WORTH_RAW
                and samples_of.has(question.kind)
                and self._raw_samples
                and server.hands_out_samples
            ):
                try:
                    of_samples = partial(answer, question, asked=False)
                    await self._hasty().ask_all(self._raw_parts(held, ask), of_samples)
                except UsageError as error:  # whatever it is, the server may well answer queries
                    self._raw_samples = not isinstance(error, SourceRefused)
                else:
                    return
            parts = self._parts(held, asked_of[question.kind])
            await self._patience.ask_all(parts, partial(answer, question))

        # All at once: what one leaves of the server and of ourselves, between its first and its last part, another takes.
        async with side_by_side() as group:
            for question in questions:
                group.create_task(ask_for(question))
        return columns

    async def has_usage(self, *, at: float) -> bool:
        """Whether anything was known of containers at a time."""
        memory = selector(self.settings.memory_rule or MEMORY, all_equal(self.settings.labels))
        return bool(await self.vector(f"count({memory})", at=at))

    async def value(self, promql: str, *, at: float) -> float | None:
        """The one number that a query gives at a time; None when it gives none, or more than one."""
        found = await self.vector(promql, at=at)
        return found[0][1] if len(found) == 1 else None

    async def vector(self, promql: str, *, at: float) -> list[tuple[dict[str, str], float]]:
        """All that a query gives at a time: the labels of each series, and its number."""
        grid = Grid(at, 1.0, 1)
        server = await self._server(grid)

        def numbers(answer: list[Series]) -> list[tuple[dict[str, str], float]]:
            return [(series.metric, value) for series in answer if (value := first(series)) is not None]

        return await self._patience.ask(lambda: server.range(promql, grid, numbers))

    # How it is done

    def _hasty(self) -> Patience:
        """For what has another way, or whose failure is an answer."""
        return replace(self._patience, retries=min(1, self.settings.retries))

    def _questions(self, held: Holdings, window: Window) -> list[Question]:
        left_out = {
            kind
            for kind, wanted in (("throttled", self.settings.throttling), ("oom", self.settings.ooms))
            if not wanted
        }
        return [question for question in held.scheme.questions(window) if question.kind not in left_out]

    def _window(self, held: Holdings, ask: Ask) -> Window:
        return Window.of(step=ask.step, interval=held.interval, wished=self.settings.rate_window)

    def _parts(self, held: Holdings, ask: Ask) -> list[Part]:
        settings = self.settings
        return list(
            parts_of(
                held.series,
                steps=ask.steps,
                points_a_series=settings.points_a_series,
                samples_a_query=settings.samples_a_query,
            )
        )

    def _raw_parts(self, held: Holdings, ask: Ask) -> list[Part]:
        """Parts of which the raw samples fit twice into the largest answer that is taken in."""
        samples_a_step = max(1.0, ask.step / held.interval)
        room = self.settings.bytes_an_answer / 2 / sample_reader.BYTES_A_SAMPLE / samples_a_step
        return list(
            parts_of(
                held.series, steps=ask.steps, points_a_series=ask.steps, samples_a_query=max(1, int(room))
            )
        )

    async def _look(
        self,
        server: Server,
        grid: Grid,
        namespaces: tuple[str, ...] | None,
        patience: Patience | None = None,
    ) -> Holdings:
        now = time.monotonic()
        held = self._memory.of(grid, namespaces, at=now)
        if held is None:
            look = Look(server, patience or self._patience, self.settings, grid)
            held = await look.holdings(namespaces, now=time.time(), known=self._memory.scheme(at=now))
            self._memory.keep(held, grid, namespaces, at=now)
        self.capabilities = Capabilities(
            history=True,
            throttling=self.settings.throttling and held.scheme.throttling,
            ooms=self.settings.ooms and held.scheme.ooms,
        )
        return held

    async def _server(self, grid: Grid) -> Server:
        """The server; found on the first call, by what it has for the time that is asked for then."""
        async with self._finding:
            if self._wire is None:
                self._wire = await self._best(await ways_to(self.settings, self.client), grid)
            return Server(self._wire)

    async def _best(self, ways: list[Way], grid: Grid) -> Wire:
        """The first that has anything of containers; where none has, the first, so that it is said what it lacks."""
        for way in ways if len(ways) > 1 else ():
            wire = await self._wire_of(way).__aenter__()
            with suppress(UsageError):
                if await Server(wire).label_names(MEMORY, grid):
                    return wire
            await wire.__aexit__()
        return await self._wire_of(ways[0]).__aenter__()

    def _wire_of(self, way: Way) -> Wire:
        settings = self.settings
        connection, path = way
        tenant = {"X-Scope-OrgID": settings.tenant} if settings.tenant else {}
        return Wire(
            connection,
            path=path,
            only_get=bool(path),
            headers={**tenant, **settings.headers},
            timeout=settings.timeout,
            most_bytes=settings.bytes_an_answer,
        )


def _grid(ask: Ask) -> Grid:
    return Grid(ask.start, ask.step, ask.steps)


def _earlier(ask: Ask, window: Window) -> Ask:
    """From so long before on that a kill which an earlier read has told of is known again."""
    return replace(ask, start=ask.start - math.ceil(window.kills / ask.step) * ask.step)


def _kills(seen: Columns | None, ask: Ask, window: Window) -> tuple[Oom, ...] | None:
    if seen is None:
        return None
    start = _earlier(ask, window).start
    return events(seen, start=start, step=ask.step, window=window.kills, since=ask.start)


def _most(kind: Kind, held: Holdings) -> float:
    return {
        "cpu": held.most_cores,
        "memory": held.most_bytes,
        "throttled": 1.0 + ROUNDING,
        "oom": MOST_KILLS,
    }[kind]


async def _take(
    server: Server,
    question: Question,
    part: Part,
    *,
    grid: Grid,
    names: dict[PodContainer, PodContainer],
    into: Columns,
) -> None:
    """Ask for one part, and keep the answer once all of it is known to be sound."""
    asked = Grid(grid.start + part.first * grid.step, grid.step, part.steps)

    def read(answer: list[Series]) -> tuple[list[PodContainer], Indices, RowNumbers, Floats]:
        found = [_container(series.metric, question.labels) for series in answer]
        return [names.setdefault(name, name) for name in found], *samples(answer, asked)

    containers, which, rows, values = await server.range(question.promql(part.pods), asked, read)
    into.lay(containers, which, part.first + rows, values)


def _lay(
    found: Rows,
    question: Question,
    part: Part,
    *,
    names: dict[PodContainer, PodContainer],
    into: Columns,
) -> None:
    """Keep raw samples, once all of a part is known to be sound."""
    containers = [_container(labels, question.labels) for labels in found.labels]
    into.lay_rows([names.setdefault(name, name) for name in containers], part.first, found.values)


def _container(names: Mapping[str, str], labels: Labels) -> PodContainer:
    try:
        return PodContainer(
            intern(names[labels.namespace]), names[labels.pod], intern(names[labels.container])
        )
    except KeyError as missing:
        raise BadAnswer(f"the answer has a series without the label {missing}") from None


def _usage(columns: dict[Kind, Columns], grid: Grid, *, ooms: tuple[Oom, ...] | None) -> Usage:
    containers = tuple(sorted(columns["cpu"].containers | columns["memory"].containers))
    throttled = columns["throttled"].grid(containers) if "throttled" in columns else None
    if throttled is not None:
        np.minimum(throttled, 1.0, out=throttled)
    return Usage(
        containers=containers,
        start=grid.start,
        step=grid.step,
        cpu=columns["cpu"].grid(containers),
        memory=columns["memory"].grid(containers),
        throttled=throttled,
        ooms=ooms,
    )
