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
from trimtab.web.rows import seen

NOW = 1e9
CORE = {"name": "app", "resources": {"requests": {"cpu": "1"}}}


@pytest.mark.parametrize(
    ("resource", "samples", "cores"),
    [(JOBS, 0, 0.0), (JOBS, 60, 0.1), (JOBS, 1200, 1.0), (DEPLOYMENTS, 60, 0.0)],
)
def test_what_runs_now_and_then_costs_its_share_of_the_time_and_not_its_pods_of_this_moment(
    resource: Resource, samples: int, cores: float
) -> None:
    """A sample a minute over ten hours; of a Deployment without pods nothing is paid for, whatever ran before."""
    found = workload("report", resource=resource, containers=(CORE,))
    known = SimpleNamespace(evidence=Evidence(samples=samples, first=NOW - 36_000, runs_on=found.runs_on))
    desk: Any = SimpleNamespace(
        catalog=SimpleNamespace(pods_of=lambda _: ()),
        statuses=SimpleNamespace(outcome=lambda _: None),
        orders=SimpleNamespace(
            of=lambda _: SimpleNamespace(name="p", sizing=None, spec=SimpleNamespace(mode=Mode.AUTO))
        ),
        learning=SimpleNamespace(learned=lambda *_, **__: known, step=60.0),
    )
    prices = Prices()
    row = seen(desk, found, {}, prices=prices, now=NOW).row
    assert row.cost == pytest.approx(cores * prices.of_cpu(1000))
