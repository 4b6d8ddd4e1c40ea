"""The gauges of policies: they say what the outcomes say, and nothing of what is gone."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.api.optimizationpolicy import WorkloadState
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.operator.metrics import Metrics
from trimtab.operator.policy.status import SkipReason, WorkloadOutcome
from trimtab.operator.policy.status_writer import WorkloadGauges

Found = dict[WorkloadKey, WorkloadOutcome]

found = st.dictionaries(
    st.builds(WorkloadKey, st.just("Deployment"), st.sampled_from(["a", "b", "c"]), st.sampled_from("xyz")),
    st.builds(
        WorkloadOutcome,
        state=st.sampled_from([WorkloadState.APPLIED, WorkloadState.SKIPPED, WorkloadState.PENDING]),
        skip_reason=st.sampled_from(SkipReason),
    ),
    max_size=6,
)


def gauge_values(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    return {
        tuple(sample.labels.values()): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == f"trimtab_{name}"
    }


@settings(max_examples=100)
@given(st.lists(st.tuples(st.sampled_from(["p", "q"]), found), max_size=8))
def test_policy_gauges_show_the_last_counts(steps: list[tuple[str, Found]]) -> None:
    metrics = Metrics()
    tally = WorkloadGauges(metrics)
    latest: dict[str, Found] = {}
    for policy, outcomes in steps:
        tally.update(policy, outcomes.items())
        latest[policy] = outcomes
    monitored = Counter((key.namespace, policy) for policy, some in latest.items() for key in some)
    assert gauge_values(metrics, "workloads_monitored") == monitored
    skipped = Counter(
        (key.namespace, policy, outcome.skip_reason.value)
        for policy, some in latest.items()
        for key, outcome in some.items()
        if outcome.state is WorkloadState.SKIPPED
    )
    assert gauge_values(metrics, "workloads_skipped") == skipped
    assert gauge_values(metrics, "workloads_updated").keys() == monitored.keys()
    tally.clear()
    assert not any(gauge_values(metrics, f"workloads_{name}") for name in ("monitored", "updated", "skipped"))
