"""Histograms of many series: the same to a scrape as those of Prometheus' own client."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from trimtab.operator.metrics import LabelHistogram

BOUNDS = (0.1, 0.5, 1.0, 2.5)

amounts = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from((*BOUNDS, 0.0, 0.3, 7.0, 1e9))))


@given(amounts)
def test_label_histogram_renders_like_the_prometheus_client(observed: list[tuple[str, float]]) -> None:
    own, theirs = CollectorRegistry(), CollectorRegistry()
    ours = LabelHistogram("trimtab_share", "A share", ("policy",), bounds=BOUNDS)
    own.register(ours)
    model = Histogram("trimtab_share", "A share", ("policy",), buckets=BOUNDS, registry=theirs)
    for policy, amount in observed:
        ours.labels(policy).observe(amount)
        model.labels(policy).observe(amount)
    expected = [line for line in generate_latest(theirs).decode().splitlines() if "_created" not in line]
    assert generate_latest(own).decode().splitlines() == expected


def test_label_histogram_times_a_block() -> None:
    ours = LabelHistogram("trimtab_seconds", "Seconds", ("policy",), bounds=BOUNDS)
    with ours.labels("p").time():
        pass
    (family,) = ours.collect()
    assert {sample.name: sample.value for sample in family.samples}["trimtab_seconds_count"] == 1
