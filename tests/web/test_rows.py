"""A workload in a line, from what a leader knows of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from harness.records import workload
from trimtab.api.optimizationpolicy import Mode
from trimtab.kube.resources import DEPLOYMENTS, JOBS, Resource
from trimtab.sizing.evidence import Evidence
from trimtab.survey.prices import Prices
from trimtab.web.model import WorkloadRow
from trimtab.web.rows import seen

NOW = 277_777 * 3600.0
CORE = {"name": "app", "resources": {"requests": {"cpu": "1"}}}


def row(resource: Resource, *, samples: int, now: float = NOW, last: float = 0.0) -> WorkloadRow:
    """Of one without pods, of which a sample a minute is known since ten hours before."""
    found = workload("report", resource=resource, containers=(CORE,))
    evidence = Evidence(samples=samples, first=NOW - 36_000, last=last, runs_on=found.runs_on)
    desk: Any = SimpleNamespace(
        catalog=SimpleNamespace(pods_of=lambda _: ()),
        statuses=SimpleNamespace(outcome=lambda _: None),
        orders=SimpleNamespace(
            of=lambda _: SimpleNamespace(name="p", sizing=None, spec=SimpleNamespace(mode=Mode.AUTO))
        ),
        learning=SimpleNamespace(learned=lambda *_, **__: SimpleNamespace(evidence=evidence), step=60.0),
    )
    return seen(desk, found, {}, prices=Prices(), now=now).row


@pytest.mark.parametrize(
    ("resource", "samples", "cores"),
    [(JOBS, 0, 0.0), (JOBS, 60, 0.1), (JOBS, 1200, 1.0), (DEPLOYMENTS, 60, 0.0)],
)
def test_what_runs_now_and_then_costs_its_share_of_the_time_and_not_its_pods_of_this_moment(
    resource: Resource, samples: int, cores: float
) -> None:
    """Of a Deployment without pods nothing is paid for, whatever ran before."""
    assert row(resource, samples=samples).cost == pytest.approx(cores * Prices().of_cpu(1000))


def test_what_rests_is_no_news_at_every_look() -> None:
    """Every open page would be made anew every other second."""
    resting = row(JOBS, samples=60, now=NOW + 10)
    assert row(JOBS, samples=60, now=NOW + 3000) == resting
    assert row(JOBS, samples=60, now=NOW + 36_000).cost == pytest.approx(resting.cost / 2)
    assert row(JOBS, samples=61, last=NOW + 20, now=NOW + 20) != resting
