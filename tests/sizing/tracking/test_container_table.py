"""A container table answers by name as a strategy of just those containers would."""

from typing import NamedTuple

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.sizing.tracking.container_table import EvidenceTable, StrategyTable

HOUR = 3600.0


class Name(NamedTuple):
    pod: str
    container: str


def fleet(name: str = "percentile") -> StrategyTable[Name]:
    return StrategyTable(name, {"min_samples": 1} if name == "percentile" else {}, key=Name)


def usage(name: Name, t: float) -> float:
    """Return the usage of this container at that time."""
    return 0.1 * (1 + int(name.pod.rpartition("-")[2]) % 7) + 0.01 * (t / HOUR % 5)


def show(some: StrategyTable[Name], names: list[Name], t: float) -> None:
    rows = some.find_rows(names)
    used = np.array([usage(name, t) for name in names])
    some.observe(t, rows, cpu=used, memory=used * 1e9)


def targets(some: StrategyTable[Name], names: list[Name], t: float) -> list[list[float]]:
    sizes, rows = some.recommend(t), some.find_rows(names)
    return [sizes.cpu.target[rows].tolist(), sizes.memory.target[rows].tolist()]


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.sampled_from(["in", "out", "seen", "restart"]), st.integers(0, 40)), max_size=60)
)
def test_container_table_sizes_remaining_containers_independently_of_others(
    steps: list[tuple[str, int]],
) -> None:
    everybody = fleet()
    alone: dict[Name, StrategyTable[Name]] = {}
    t = 1.7e9
    for action, number in steps:
        name = Name(f"pod-{number}", "main")
        if action == "in":
            everybody.add([name, name])
            alone.setdefault(name, fleet()).add([name])
        elif action == "out":
            everybody.forget([name])
            alone.pop(name, None)
        elif action == "restart":
            again = fleet()
            again.restore(everybody.state())
            everybody = again
        else:
            t += HOUR
            show(everybody, list(alone), t)
            for one, own in alone.items():
                show(own, [one], t)
    assert set(everybody) == alone.keys()
    for name, own in alone.items():
        np.testing.assert_array_equal(targets(everybody, [name], t), targets(own, [name], t))


def test_container_table_reused_row_starts_empty() -> None:
    some = fleet()
    first = [Name(f"pod-{number}", "main") for number in range(100)]
    some.add(first)
    show(some, first, 1.7e9)
    some.forget(first[:90])
    later = [Name(f"later-{number}", "main") for number in range(500)]
    some.add(later)
    assert len(some) == 510
    assert np.isnan(targets(some, later, 1.7e9)).all()
    assert np.isfinite(targets(some, first[90:], 1.7e9)).all()


def test_container_table_rejects_invalid_state_without_change() -> None:
    some = fleet()
    some.add([Name("a", "main")])
    before = some.state()
    for wrong in (b"", b"\x80", before[:-1], fleet("vpa").state()):
        with pytest.raises(ValueError, match="state: "):
            some.restore(wrong)
    assert some.state() == before


def test_strategy_table_restores_state_without_proposal_history() -> None:
    some, name = fleet(), Name("pod-1", "main")
    some.add([name])
    show(some, [name], 1.7e9)
    some.propose(1.7e9)
    (row,) = some.find_rows([name]).tolist()
    assert max(some.recent_targets(1.7e9, row).cpu) > 0
    *older, _ = msgspec.msgpack.decode(some.state())
    again = fleet()
    again.restore(msgspec.msgpack.encode(older))
    assert targets(again, [name], 1.7e9) == targets(some, [name], 1.7e9)
    assert max(again.recent_targets(1.7e9, row).cpu) == 0


def test_strategy_table_old_oom_kill_does_not_affect_other_containers() -> None:
    """A pod remembers its last kill for as long as it lives; the operator hears of it when it starts."""
    some: StrategyTable[Name] = StrategyTable("percentile", {"quantile": 1.0}, key=Name)
    killed, other = Name("pod-1", "main"), Name("pod-2", "main")
    some.add([killed, other])
    rows, now = some.find_rows([killed, other]), 1.7e9
    for hours in range(24, 0, -1):
        peak = 4e9 if hours in {5, 6} else 1e9
        some.observe(now - hours * HOUR, rows, cpu=np.ones(2), memory=np.full(2, peak))
    before = targets(some, [other], now)
    days_ago = np.array([now - (17 * 24 + 5) * HOUR])
    some.observe_oom(days_ago, some.find_rows([killed]), np.array([1e9]))
    assert targets(some, [other], now) == before


def test_strategy_table_dates_each_oom_kill_separately() -> None:
    some, now = fleet("seasonal"), 1.7e9
    before, lately = Name("pod-1", "main"), Name("pod-2", "main")
    some.add([before, lately])
    for hours in range(72, 0, -1):
        show(some, [before, lately], now - hours * HOUR)
    (_, (usual, _)) = targets(some, [before, lately], now)
    times = np.array([now - 70 * HOUR, now - 60.0])
    some.observe_oom(times, some.find_rows([before, lately]), np.full(2, 8e9))
    (_, (of_long_ago, of_now)) = targets(some, [before, lately], now)
    assert of_long_ago == usual
    assert of_now == pytest.approx(8.8e9)
    for hours in range(3):
        show(some, [before, lately], now + hours * HOUR)
    (_, (of_long_ago, _)) = targets(some, [before, lately], now + 2 * HOUR)
    assert of_long_ago < 2 * usual


def test_evidence_table_restores_state_of_first_version() -> None:
    """A fleet kept the evidence of its containers: an upgrade goes on from it."""
    name, now = Name("pod-1", "main"), 1.7e9
    table: EvidenceTable[Name] = EvidenceTable(key=Name)
    table.add([name])
    rows = table.find_rows([name])
    table.observe(now, rows, cpu=np.ones(1), memory=np.full(1, 3e9), sample_seconds=60.0)
    table.observe_oom(np.array([now]), rows, np.array([4e9]))
    keys, places, taken, containers, _, witness, _ = msgspec.msgpack.decode(table.state())
    sized = fleet()
    sized.add([name])
    show(sized, [name], now)
    _, _, _, _, strategy, _, proposed = msgspec.msgpack.decode(sized.state())
    former = msgspec.msgpack.encode([keys, places, taken, containers, strategy, witness, proposed])
    again: EvidenceTable[Name] = EvidenceTable(key=Name)
    again.restore(former)
    assert again.collect_evidence(
        now, again.find_rows([name]), is_long_running=[True]
    ) == table.collect_evidence(now, rows, is_long_running=[True])
    sized_again = fleet()
    sized_again.restore(former)
    assert targets(sized_again, [name], now) == targets(sized, [name], now)
    with pytest.raises(ValueError, match="state: "):
        again.restore(sized.state())
