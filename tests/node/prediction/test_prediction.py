"""Peaks, and what production has to spare by them."""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.builders.node_views import pod_view
from trimtab.kube.kinds.pods import Resources
from trimtab.node.collectors.node import RemainderCollector
from trimtab.node.model import ContainerView, Metric, NodeView, PodView, Tier, pod_subject, tier_subject
from trimtab.node.prediction import ALGORITHMS, Predictor, ResourceAmounts
from trimtab.node.prediction.histogram import CPU, DAY, BucketScale, DecayingHistogram
from trimtab.node.prediction.predictor import ALL_PROD
from trimtab.node.series import SeriesRetention, SeriesStore

HOUR = 3600.0
GIB = 1 << 30


def requesting(cores: float, memory: int, **more: Any) -> PodView:
    resources = Resources(cpu_request=round(cores * 1000), memory_request=memory)
    pod = pod_view("pod", **more)
    container = ContainerView(name="main", id="x", resources=resources, cgroup="pod/x")
    return PodView(**{**vars(pod), "containers": (container,)})


def trained_predictor(
    pods: list[tuple[PodView, float, float]],
    hours: float,
    *,
    since: float = 1e6,
    predictor: Predictor | None = None,
) -> tuple[Predictor, NodeView]:
    """Return a predictor that observed these pods at a constant usage for so many hours."""
    view = NodeView(name="node", cpus=(), memory=0, pods=tuple(pod for pod, *_ in pods))
    predictor, series = predictor or Predictor(), SeriesStore()
    for minute in range(round(hours * 60) + 1):
        series.now = since + minute * 60
        for metric in (Metric.CPU, Metric.MEMORY):
            sums = dict.fromkeys(Tier, 0.0)
            for pod, cpu, memory in pods:
                used = cpu if metric is Metric.CPU else memory
                series.add(pod_subject(pod.uid), metric, used, period=30.0)
                sums[pod.tier] += used
            for tier, total in sums.items():
                series.add(tier_subject(tier), metric, total, period=30.0)
        predictor.learn(view, series, series.now)
    return predictor, view


def test_predictor_reports_nothing_reclaimable_before_a_day_of_samples() -> None:
    pod = requesting(2.0, GIB)
    predictor, view = trained_predictor([(pod, 0.5, GIB / 4)], hours=23.9)
    assert [predictor.estimate_reclaimable(view, name) for name in ALGORITHMS] == [None, None, None]


def test_predictor_forgets_history_when_the_clock_goes_back_by_decades() -> None:
    """A machine without a clock battery starts in 1970 until its clock is set."""
    peaks = DecayingHistogram(CPU)
    peaks.add(20_000 * DAY, 8.0)
    peaks.add(DAY, 0.5)
    peaks.add(DAY, 0.5)
    found = peaks.percentile(0.95)
    assert found is not None
    assert 0.5 <= found < 0.6


def test_predictor_relearns_samples_of_a_clock_that_was_ahead() -> None:
    pod = requesting(2.0, GIB)
    ahead, _ = trained_predictor([(pod, 0.5, GIB / 4)], hours=1, since=1e9)
    predictor, view = trained_predictor([(pod, 0.5, GIB / 4)], hours=24, predictor=ahead)
    assert predictor.estimate_reclaimable(view, "careful") is not None


def test_predictor_counts_a_day_by_samples_and_not_by_the_clock() -> None:
    pod = requesting(2.0, GIB)
    before, _ = trained_predictor([(pod, 0.5, GIB / 4)], hours=1)
    predictor, view = trained_predictor(
        [(pod, 0.5, GIB / 4)], hours=22, since=1e6 + 30 * DAY, predictor=before
    )
    assert predictor.estimate_reclaimable(view, "pods") is None
    predictor, view = trained_predictor(
        [(pod, 0.5, GIB / 4)], hours=1, since=1e6 + 60 * DAY, predictor=predictor
    )
    assert predictor.estimate_reclaimable(view, "pods") is not None


def test_predictor_reclaims_requests_above_peak_plus_margin() -> None:
    pod = requesting(2.0, GIB)
    predictor, view = trained_predictor([(pod, 0.5, GIB / 4)], hours=24)
    spare = predictor.estimate_reclaimable(view, "pods")
    assert spare is not None
    # A percentile is where its bucket ends: at most a twentieth above.
    assert 2000 - 550 * 1.06 <= spare.cpu <= 2000 - 550
    assert GIB - GIB / 4 * 1.1 * 1.06 <= spare.memory <= GIB - GIB / 4 * 1.1


def test_predictor_reclaims_nothing_from_best_effort_pods() -> None:
    pods = [(requesting(2.0, GIB), 0.5, GIB / 4), (requesting(8.0, GIB, tier=Tier.BE), 0.1, 0.0)]
    predictor, view = trained_predictor([(pod, cpu, memory) for pod, cpu, memory in pods], hours=24)
    spare = predictor.estimate_reclaimable(view, "pods")
    assert spare is not None
    assert spare.cpu < 2000


def test_predictor_offsets_overuse_only_in_the_combined_figure() -> None:
    pods = [(requesting(2.0, GIB), 0.5, GIB / 4), (requesting(0.5, GIB), 2.0, GIB / 4)]
    predictor, view = trained_predictor(pods, hours=24)
    single, together = (
        predictor.estimate_reclaimable(view, "pods"),
        predictor.estimate_reclaimable(view, "together"),
    )
    assert single is not None
    assert together is not None
    assert together.cpu < single.cpu
    assert predictor.estimate_reclaimable(view, "careful") == ResourceAmounts(
        min(single.cpu, together.cpu), min(single.memory, together.memory)
    )


def test_predictor_combined_figure_excludes_requests_of_new_pods() -> None:
    old, new = requesting(4.0, 8 * GIB), requesting(8.0, 8 * GIB)
    predictor, alone = trained_predictor([(old, 3.5, GIB)], hours=48)
    before = {name: predictor.estimate_reclaimable(alone, name) for name in ALGORITHMS}
    since = 1e6 + 48 * HOUR
    predictor, both = trained_predictor(
        [(old, 3.5, GIB), (new, 7.8, GIB)], hours=23, since=since, predictor=predictor
    )
    assert {name: predictor.estimate_reclaimable(both, name) for name in ALGORITHMS} == before
    predictor, both = trained_predictor(
        [(old, 3.5, GIB), (new, 0.8, GIB)], hours=26, since=since + 23 * HOUR, predictor=predictor
    )
    grown, at_first = predictor.estimate_reclaimable(both, "together"), before["together"]
    assert grown is not None
    assert at_first is not None
    assert grown.memory > at_first.memory


@given(
    pods=st.lists(st.tuples(st.integers(0, 8000), st.one_of(st.none(), st.integers(0, 9000)))),
    whole=st.one_of(st.none(), st.integers(0, 30_000)),
)
def test_predictor_ignores_pods_with_less_than_a_day_of_samples(
    pods: list[tuple[int, int | None]], whole: int | None
) -> None:
    views = [requesting(cpu / 1000, GIB) for cpu, _ in pods]
    needs = {view.uid: need for view, (_, need) in zip(views, pods, strict=True)} | {ALL_PROD: whole}

    def need(key: str) -> ResourceAmounts | None:
        found = needs[key]
        return None if found is None else ResourceAmounts(found, GIB // 2)

    old = [view for view in views if needs[view.uid] is not None]
    for algorithm in ALGORITHMS.values():
        spare = algorithm(views, need)
        assert spare == algorithm(old, need)
        assert spare is None or 0 <= spare.cpu <= sum(view.resources.cpu_request or 0 for view in old)


@pytest.mark.parametrize("phase", [0, 30])
def test_predictor_sees_peaks_within_each_minute(
    phase: int,
) -> None:
    """The pod requests 6 cores, and uses 5 of them for 10 seconds of every minute."""
    pod = requesting(6.0, GIB)
    view, spares = NodeView(name="node", cpus=(), memory=0, pods=(pod,)), []
    for reported in (300.0, 86400.0):
        series, predictor, remainder = SeriesStore(), Predictor(), RemainderCollector()
        series.set_retention(SeriesRetention(node=reported, pods=reported))
        for second in range(0, 25 * 3600, 5):
            series.now = 1e6 + second
            used = 5.0 if (second + phase) % 60 < 10 else 0.1
            series.add(pod_subject(pod.uid), Metric.CPU, used, period=5.0)
            series.add(pod_subject(pod.uid), Metric.MEMORY, used * GIB / 10, period=5.0)
            remainder.collect(view, series)
            predictor.learn(view, series, series.now)
        spares.append([predictor.estimate_reclaimable(view, name) for name in ALGORITHMS])
    assert spares[0] == spares[1]
    for spare in spares[0]:
        assert spare is not None
        assert spare.cpu < 600
        assert spare.memory < GIB * 0.5


def test_predictor_keeps_peaks_over_a_restart_and_forgets_removed_pods() -> None:
    pod = requesting(2.0, GIB)
    predictor, view = trained_predictor([(pod, 0.5, GIB / 4)], hours=24)
    after = Predictor()
    after.restore(predictor.state())
    assert after.estimate_reclaimable(view, "careful") == predictor.estimate_reclaimable(view, "careful")
    series = SeriesStore(now=1e6 + DAY + 2 * HOUR)
    after.learn(view, series, series.now)  # no samples for two hours
    assert after.estimate_reclaimable(view, "careful") == predictor.estimate_reclaimable(view, "careful")
    series.now += HOUR
    after.learn(NodeView(name="node", cpus=(), memory=0), series, series.now)
    assert len(after) == 0
    with pytest.raises(ValueError):
        after.restore(b"nonsense")


@given(st.lists(st.floats(0.0, 900.0), min_size=1, max_size=200), st.floats(0.01, 1.0))
def test_histogram_percentile_is_in_the_bucket_of_its_sample(values: list[float], share: float) -> None:
    histogram = DecayingHistogram(BucketScale(first_width=0.01, max_value=1000.0, half_life=1e15))
    for value in values:
        histogram.add(100.0, value)
    exact = float(np.percentile(np.array(values), share * 100, method="inverted_cdf"))
    found = histogram.percentile(share)
    assert found is not None
    assert found == CPU.bucket_end(CPU.find_bucket(exact))


def test_histogram_weight_halves_in_a_half_life() -> None:
    histogram = DecayingHistogram(CPU)
    rng = random.Random(1)
    for _ in range(1000):
        histogram.add(rng.uniform(0, 60), 8.0)
    for _ in range(300):
        histogram.add(DAY * 2, 1.0)  # 250 of the old ones are left by then
    half, most = histogram.percentile(0.5), histogram.percentile(0.6)
    assert half is not None
    assert most is not None
    assert half < 1.1
    assert most >= 8.0


def test_histogram_does_not_overflow_over_years() -> None:
    histogram = DecayingHistogram(CPU)
    for year in range(50):
        histogram.add(year * 365 * DAY, 1.0 + year)
    assert (histogram.percentile(0.95) or 0) >= 50.0
    assert DecayingHistogram.from_state(CPU, histogram.to_state()).percentile(0.95) == histogram.percentile(
        0.95
    )
