"""Recommendations are judged by what is used while they are in use."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.kube.kinds.pods import Resources
from trimtab.operator.metrics import Metrics
from trimtab.operator.sizing.ingest_cycle import record_usage_ratios
from trimtab.recommender.cohort import LatestUsage
from trimtab.sizing.recommendation import Recommendation

some = st.floats(0, 100) | st.just(math.nan)


@settings(max_examples=100)
@given(
    st.none() | st.builds(LatestUsage, some, some),
    st.none() | st.integers(0, 1000),
    st.none() | st.integers(0, 1000),
    st.none() | st.just("no data"),
)
def test_ingest_cycle_counts_each_known_share_once(
    used: LatestUsage | None, cpu: int | None, memory: int | None, held: str | None
) -> None:
    metrics = Metrics()
    recommendation = Recommendation("web", Resources(cpu, None, memory, None), (), held)
    record_usage_ratios([recommendation], lambda _: used, policy="p", metrics=metrics)
    for resource, amount, of in (
        ("cpu", used.cpu * 1000 if used else math.nan, cpu),
        ("memory", used.memory if used else math.nan, memory),
    ):
        labels = {"policy": "p", "resource": resource}
        said = metrics.registry.get_sample_value("trimtab_usage_to_recommendation_ratio_sum", labels)
        if not of or math.isnan(amount) or held:
            assert said is None
        else:
            assert said == amount / of
