"""A cohort answers for each container as one of only that container would, while others come and go."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.recommender.cohort import Cohort, EvidenceCohort, StrategyCohort, StrategySpec
from trimtab.recommender.oom_kills import OomKill
from trimtab.usage.pod_ownership import WorkloadContainer
from trimtab.usage.workload_usage import WorkloadUsage

HOUR = 3600.0
NOW = 1.7e9 // HOUR * HOUR


def container(number: int) -> WorkloadContainer:
    return WorkloadContainer("shop", "Deployment", f"web-{number}", "web")


def new_cohort(name: str = "percentile", **given: object) -> StrategyCohort:
    given = given or ({"min_samples": 1} if name == "percentile" else {})
    return StrategyCohort(StrategySpec.from_settings(name, given), until=0.0)


def sample(name: WorkloadContainer, t: float) -> float:
    """Return the cores that a container uses at a time."""
    return 0.1 * (1 + int(name.name.rpartition("-")[2]) % 7) + 0.01 * (t / HOUR % 5)


def observe(
    cohort: Cohort, names: Sequence[WorkloadContainer], t: float, memory: float | None = None
) -> None:
    cpu = np.array([[sample(name, t) for name in names]])
    cohort.observe_usage(
        WorkloadUsage(
            containers=tuple(names),
            roles=tuple("main" for _ in names),
            start=t,
            step=60.0,
            cpu=cpu,
            memory=cpu * 1e9 if memory is None else np.full_like(cpu, memory),
            throttled=None,
            container=np.arange(len(names)),
            replica=np.zeros(len(names), np.intp),
            ooms=(),
            unowned=(),
        ),
        running=(),
        until=t,
    )


def targets(cohort: StrategyCohort, names: Sequence[WorkloadContainer], t: float) -> list[list[float]]:
    cohort.discard_results()
    found = [cohort.get_proposal(name, now=t) for name in names]
    return [[each.cpu.target for each in found], [each.memory.target for each in found]]


def decode(state: bytes) -> tuple[float, list[object]]:
    until, rows = msgspec.msgpack.decode(state)
    return until, msgspec.msgpack.decode(rows)


def encode(until: float, rows: Sequence[object]) -> bytes:
    return msgspec.msgpack.encode([until, msgspec.msgpack.encode(rows)])


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.sampled_from(["in", "out", "seen", "restart"]), st.integers(0, 40)), max_size=60)
)
def test_cohort_sizes_remaining_containers_independently_of_others(steps: list[tuple[str, int]]) -> None:
    everybody = new_cohort()
    alone: dict[WorkloadContainer, StrategyCohort] = {}
    t = NOW
    for action, number in steps:
        name = container(number)
        if action == "in":
            everybody.add([name, name])
            alone.setdefault(name, new_cohort()).add([name])
        elif action == "out":
            everybody.forget([name])
            alone.pop(name, None)
        elif action == "restart":
            again = new_cohort()
            again.restore(everybody.state())
            everybody = again
        else:
            t += HOUR
            observe(everybody, list(alone), t)
            for one, own in alone.items():
                observe(own, [one], t)
    assert set(everybody) == alone.keys()
    for name, own in alone.items():
        np.testing.assert_array_equal(targets(everybody, [name], t), targets(own, [name], t))


def test_cohort_reused_row_starts_empty() -> None:
    cohort, first = new_cohort(), [container(number) for number in range(100)]
    cohort.add(first)
    observe(cohort, first, NOW)
    cohort.forget(first[:90])
    later = [container(1000 + number) for number in range(500)]
    cohort.add(later)
    assert len(cohort) == 510
    assert np.isnan(targets(cohort, later, NOW)).all()
    assert np.isfinite(targets(cohort, first[90:], NOW)).all()


def test_cohort_rejects_invalid_state_without_change() -> None:
    cohort = new_cohort()
    cohort.add([container(1)])
    before = cohort.state()
    for wrong in (b"", b"\x80", before[:-1], new_cohort("vpa").state()):
        with pytest.raises(ValueError, match="state: "):
            cohort.restore(wrong)
    assert cohort.state() == before


def test_strategy_cohort_restores_state_without_proposal_history() -> None:
    cohort, name = new_cohort(), container(1)
    cohort.add([name])
    observe(cohort, [name], NOW)
    assert max(cohort.get_proposal(name, now=NOW).cpu.recent) > 0
    until, (*older, _, _) = decode(cohort.state())
    again = new_cohort()
    again.restore(encode(until, older))
    assert targets(again, [name], NOW) == targets(cohort, [name], NOW)
    assert max(again.get_proposal(name, now=NOW).cpu.recent) == 0


def test_strategy_cohort_old_oom_kill_does_not_affect_other_containers() -> None:
    """A pod remembers its last kill for as long as it lives; the operator reads it when it starts."""
    cohort, killed, other = new_cohort("percentile", quantile=1.0), container(1), container(2)
    cohort.add([killed, other])
    for hours in range(24, 0, -1):
        observe(cohort, [killed, other], NOW - hours * HOUR, memory=4e9 if hours in {5, 6} else 1e9)
    before = targets(cohort, [other], NOW)
    cohort.observe_ooms([OomKill(killed, NOW - (17 * 24 + 5) * HOUR, 1e9, 1e9)])
    assert targets(cohort, [other], NOW) == before


def test_strategy_cohort_dates_each_oom_kill_separately() -> None:
    cohort, before, recent = new_cohort("seasonal"), container(1), container(2)
    cohort.add([before, recent])
    for hours in range(72, 0, -1):
        observe(cohort, [before, recent], NOW - hours * HOUR)
    (_, (usual, _)) = targets(cohort, [before, recent], NOW)
    cohort.observe_ooms([OomKill(before, NOW - 70 * HOUR, 8e9, 8e9), OomKill(recent, NOW - 60.0, 8e9, 8e9)])
    (_, (of_long_ago, of_now)) = targets(cohort, [before, recent], NOW)
    assert of_long_ago == usual
    assert of_now == pytest.approx(8.8e9)
    for hours in range(3):
        observe(cohort, [before, recent], NOW + hours * HOUR)
    (_, (of_long_ago, _)) = targets(cohort, [before, recent], NOW + 2 * HOUR)
    assert of_long_ago < 2 * usual


def test_evidence_cohort_restores_state_of_first_version() -> None:
    """The first version kept the evidence with the strategy: an upgrade continues from it."""
    name = container(1)
    evidence, sized = EvidenceCohort(until=0.0), new_cohort()
    for cohort in (evidence, sized):
        cohort.add([name])
        observe(cohort, [name], NOW, memory=3e9)
    evidence.observe_ooms([OomKill(name, NOW, 4e9, 4e9)])
    until, (keys, places, taken, containers, _, tracker, *_) = decode(evidence.state())
    _, (_, _, _, _, strategy, _, proposed, _) = decode(sized.state())
    former = encode(until, [keys, places, taken, containers, strategy, tracker, proposed])
    again = EvidenceCohort(until=0.0)
    again.restore(former)
    assert again.collect_evidence([name], now=NOW, is_long_running=True) == evidence.collect_evidence(
        [name], now=NOW, is_long_running=True
    )
    sized_again = new_cohort()
    sized_again.restore(former)
    assert targets(sized_again, [name], NOW) == targets(sized, [name], NOW)
    with pytest.raises(ValueError, match="state: "):
        again.restore(sized.state())


def test_strategy_cohort_proposal_has_the_strategys_explanation_until_withdrawn() -> None:
    cohort, name = StrategyCohort(StrategySpec.from_settings("trimtab", {}), until=0.0), container(1)
    cohort.add([name])
    for step in range(130):
        observe(cohort, [name], NOW + 60.0 * step)
    t = NOW + 60.0 * 130
    assert [each.name for each in cohort.get_proposal(name, now=t).facts] == [
        "cpu forecast",
        "memory forecast",
    ]
    cohort.clear_estimates()
    assert cohort.get_proposal(name, now=t).facts == ()


def test_evidence_cohort_looks_for_the_first_sample_once_for_all_policies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each policy's status names it: looked for each time, all statuses together cost the square of the containers."""
    cohort = EvidenceCohort(until=0.0)
    first, second = container(1), container(2)
    cohort.add([first, second])
    assert cohort.first_sample_at() is None
    observe(cohort, [first], NOW)
    observe(cohort, [second], NOW + HOUR)
    searches: list[object] = []
    find_rows = EvidenceCohort.find_rows

    def count(self: EvidenceCohort, names: Sequence[WorkloadContainer]) -> object:
        searches.append(names)
        return find_rows(self, names)

    monkeypatch.setattr(EvidenceCohort, "find_rows", count)
    assert [cohort.first_sample_at() for _ in range(3)] == [NOW] * 3
    assert len(searches) == 1
    cohort.forget([first])
    assert cohort.first_sample_at() == NOW + HOUR
