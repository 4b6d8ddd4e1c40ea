"""KPIs measured by a real Prometheus, and by the servers that profiles name."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

import pytest

from harness import UnavailableError
from harness.peers.prometheus import Recorded
from intents.kpi.test_client import END, LATENCY, RATE, START, allow_any_endpoint, ask
from trimtab.api.intent import TargetRef
from trimtab.intents.kpi.client import PromqlKpiClient
from trimtab.intents.kpi.query import CPU, KpiQuery, build_kpi_query, build_usage_templates
from trimtab.usage.source import PromqlClient, Vector, source


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    lines = ["# TYPE latency gauge"]
    for app, value, last in (
        ("web", 20.0, END),
        ("db", 5.0, END),
        ("old", 7.0, END - 200),
        ("nan", 0.0, END),
    ):
        for at in range(START, last + 1, 10):
            number = "NaN" if app == "nan" else f"{value}"
            lines.append(f'latency{{namespace="shop",app="{app}"}} {number} {at}')
    lines.append("# TYPE hits counter")
    lines += [
        f'hits_total{{namespace="shop",app="web"}} {at - START} {at}' for at in range(START, END + 1, 10)
    ]
    lines.append("# TYPE container_cpu_usage_seconds counter")
    for pod, every, cores in (("brisk-0", 10, 0.5), ("slow-0", 60, 0.25), ("slow-1", 10, 0.5)):
        labels = f'namespace="shop",pod="{pod}",container="app"'
        lines += [
            f"container_cpu_usage_seconds_total{{{labels}}} {cores * (at - START)} {at}"
            for at in range(START, END + 1, every)
        ]
    try:
        server = Recorded(tmp_path_factory.mktemp("recorded"), "\n".join(lines) + "\n")
    except UnavailableError as why:
        pytest.skip(str(why))
    with server:
        yield server


@dataclass
class RecordingClient:
    """Forwards queries to a real server, and records them."""

    real: PromqlClient
    asked: list[str] = field(default_factory=list)

    async def vector(self, promql: str, *, at: float) -> Vector:
        self.asked.append(promql)
        return await self.real.vector(promql, at=at)


@pytest.fixture
async def prometheus(recorded: Recorded) -> AsyncIterator[RecordingClient]:
    async with source("prometheus", url=recorded.url) as real:
        assert real.promql is not None
        yield RecordingClient(real.promql)


async def test_kpi_client_combines_queries_into_one_request(prometheus: RecordingClient) -> None:
    asking = PromqlKpiClient(prometheus, max_age=60, timeout=30)
    questions = [ask(LATENCY), ask(LATENCY, "db"), ask(RATE), ask(f"{LATENCY} # of the web")]
    found = await asking.measure([*questions, questions[0]], at=END)
    assert [found[each].value for each in questions] == [20.0, 5.0, pytest.approx(1.0), 20.0]
    assert len(prometheus.asked) == 1


async def test_kpi_client_explains_unknown_values(prometheus: RecordingClient) -> None:
    asking = PromqlKpiClient(prometheus, max_age=60, timeout=30)
    asked = {
        "returns nothing": ask(LATENCY, "gone"),
        "200 s old": ask(LATENCY, "old"),
        "not a number": ask(LATENCY, "nan"),
        "4 values": ask('{__name__="latency"}'),
    }
    found = await asking.measure(asked.values(), at=END)
    for words, each in asked.items():
        assert found[each].value is None
        assert words in found[each].reason


async def test_kpi_client_isolates_failing_query(
    prometheus: RecordingClient,
) -> None:
    asking = PromqlKpiClient(prometheus, max_age=60, timeout=30)
    bad = ask('latency * on(namespace) latency{app="$name"} * on(namespace) latency')
    good = [ask(LATENCY), ask(LATENCY, "db"), ask(RATE)]
    found = await asking.measure([bad, *good], at=END)
    assert found[bad].value is None
    assert "the server rejected the query" in found[bad].reason
    assert None not in {found[each].value for each in good}
    prometheus.asked.clear()
    assert await asking.measure([bad, *good], at=END) == found
    assert len(prometheus.asked) == 2


async def test_kpi_client_sends_scalars_alone(prometheus: RecordingClient) -> None:
    asking = PromqlKpiClient(prometheus, max_age=60, timeout=30)
    scalar, vector = ask("scalar(vector(3))"), ask(LATENCY)
    found = await asking.measure([scalar, vector], at=END)
    assert (found[scalar].value, found[vector].value) == (3.0, 20.0)


@pytest.mark.parametrize(("name", "cores"), [("brisk", 0.5), ("slow", 0.75)])
async def test_cpu_query_covers_pods_with_long_scrape_interval(
    prometheus: RecordingClient, name: str, cores: float
) -> None:
    """A pod without a recent rate counts with its rate over a longer window."""
    target = TargetRef(kind="StatefulSet", name=name)
    template = build_usage_templates("app", 60.0)[CPU]
    asked = build_kpi_query(template, namespace="shop", target=target)
    reading = (await PromqlKpiClient(prometheus, max_age=60.0, timeout=10.0).measure([asked], at=END - 5))[
        asked
    ]
    assert reading.value == pytest.approx(cores)


async def test_kpi_client_sends_same_text_to_each_server_of_its_queries(
    prometheus: RecordingClient, recorded: Recorded
) -> None:
    own, named = KpiQuery("vector(3)"), KpiQuery("vector(3)", server=recorded.url)
    async with PromqlKpiClient(prometheus, max_age=60.0, timeout=10.0, check=allow_any_endpoint) as kpis:
        found = await kpis.measure([own, named], at=END)
    assert [found[each].value for each in (own, named)] == [3.0, 3.0]
    assert len(prometheus.asked) == 1
