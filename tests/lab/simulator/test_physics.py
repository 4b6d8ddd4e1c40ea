"""One step of the simulator's physics, held to what the kernel and the kubelet do."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.lab.simulator.physics import (
    BEST_EFFORT,
    BURSTABLE,
    GUARANTEED,
    KILLED_BY_LIMIT,
    KILLED_BY_NODE,
    UNSCHEDULED,
    Containers,
    Floats,
    Nodes,
    compute_throttled_share,
    step,
)

GIB = float(1 << 30)


def on_one_node(rows: int, *, cpu: float = 4.0, memory: float = 8 * GIB) -> tuple[Containers, Nodes]:
    containers = Containers.empty(rows)
    containers.node[:] = 0
    return containers, Nodes.from_capacity(np.array([cpu]), np.array([memory]))


def of(*values: float) -> Floats:
    return np.array(values, np.float64)


def test_alone_on_a_node_everyone_gets_what_it_wants_up_to_its_limit() -> None:
    containers, nodes = on_one_node(3)
    containers.cpu_limit[:] = [np.inf, 0.5, 2.0]
    step(containers, nodes, cpu=of(1, 1, 1), memory=of(1, 2, 3), now=0, seconds=60)
    assert containers.cpu.tolist() == [1, 0.5, 1]
    assert containers.throttled.tolist() == [0, 1, 0]
    assert containers.memory.tolist() == [1, 2, 3]
    assert nodes.cpu.tolist() == [2.5]
    assert nodes.memory.tolist() == [6]


def test_physics_shares_a_full_node_by_requests() -> None:
    containers, nodes = on_one_node(3, cpu=4)
    containers.cpu_request[:] = [1, 2, 1]
    step(containers, nodes, cpu=of(0.4, 9, 9), memory=of(0, 0, 0), now=0, seconds=60)
    assert containers.cpu == pytest.approx([0.4, 2.4, 1.2])
    assert containers.throttled.tolist() == [0, 0, 0]  # no limit throttled it


def test_physics_shares_equally_without_requests() -> None:
    containers, nodes = on_one_node(4, cpu=2)
    step(containers, nodes, cpu=of(9, 9, 9, 9), memory=of(0, 0, 0, 0), now=0, seconds=60)
    assert containers.cpu.tolist() == [0.5] * 4


def test_physics_kills_above_the_memory_limit_with_growing_backoff() -> None:
    containers, nodes = on_one_node(1)
    containers.memory_limit[:] = GIB
    now, waits = 0.0, []
    for _ in range(8):
        assert step(containers, nodes, cpu=of(1), memory=of(2 * GIB), now=now, seconds=1) == 1
        assert containers.killed.tolist() == [KILLED_BY_LIMIT]
        assert containers.memory.tolist() == [GIB]
        waits.append(containers.runs_from[0] - (now + 1))
        now = containers.runs_from[0]
    assert waits == [0, 10, 20, 40, 80, 160, 300, 300]
    assert containers.restarts.tolist() == [8]
    step(containers, nodes, cpu=of(1), memory=of(2 * GIB), now=now + 600, seconds=1)
    assert containers.runs_from[0] == now + 601


def test_physics_uses_nothing_while_waiting_and_a_part_in_part_of_a_step() -> None:
    containers, nodes = on_one_node(1)
    containers.runs_from[:] = 90
    step(containers, nodes, cpu=of(1), memory=of(GIB), now=0, seconds=60)
    assert (containers.cpu[0], containers.memory[0]) == (0, 0)
    step(containers, nodes, cpu=of(1), memory=of(GIB), now=60, seconds=60)
    assert (containers.cpu[0], containers.memory[0]) == (0.5, GIB)


def test_physics_kills_on_a_full_node_by_excess_over_the_request() -> None:
    containers, nodes = on_one_node(4, memory=10 * GIB)
    containers.qos[:] = [GUARANTEED, BURSTABLE, BEST_EFFORT, BURSTABLE]
    containers.memory_request[:] = of(5, 1, 0, 3) * GIB
    held = of(5, 3, 2.5, 3) * GIB
    step(containers, nodes, cpu=of(0, 0, 0, 0), memory=held, now=0, seconds=60)
    assert containers.killed.tolist() == [
        0,
        KILLED_BY_NODE,
        KILLED_BY_NODE,
        0,
    ]  # scores -497, 1200, 1250, 1000
    assert nodes.memory.tolist() == [8 * GIB]
    assert nodes.kills.tolist() == [2]


def test_rows_that_stand_nowhere_use_nothing() -> None:
    containers, nodes = on_one_node(2)
    containers.node[1] = UNSCHEDULED
    step(containers, nodes, cpu=of(1, 1), memory=of(1, 1), now=0, seconds=60)
    assert containers.cpu.tolist() == [1, 0]
    assert containers.memory.tolist() == [1, 0]


def test_physics_uses_nothing_without_demand() -> None:
    containers, nodes = on_one_node(1)
    containers.cpu_limit[:] = 1.0
    step(containers, nodes, cpu=of(math.nan), memory=of(math.nan), now=0, seconds=60)
    assert (containers.cpu[0], containers.memory[0], containers.throttled[0]) == (0, 0, 0)


@pytest.mark.parametrize("used", [0.5, 0.8, 0.95])
def test_physics_throttles_varying_demand_and_serves_it_later(used: float) -> None:
    limit, burst, periods = 1.0, 0.3, 200_000
    demand = np.random.default_rng(7).normal(used, burst * used, periods)
    backlog, held_back = 0.0, 0
    for wanted in demand:
        backlog = max(backlog + wanted - limit, 0.0)
        held_back += backlog > 0
    assert compute_throttled_share(used, limit, burst) == pytest.approx(held_back / periods, abs=0.02)


@st.composite
def crowds(draw: st.DrawFn) -> tuple[Containers, Nodes, Floats, Floats]:
    """Any number of containers on a few nodes; amounts of all magnitudes, of which many are equal, zero or endless."""
    rows, many = draw(st.integers(1, 30)), draw(st.integers(1, 4))
    chance = np.random.default_rng(draw(st.integers(0, 2**32)))

    def amounts(count: int = rows, *, least: float = 0.0) -> Floats:
        some = 10.0 ** chance.uniform(-3, 3, count)
        some[chance.random(count) < 0.2] = least
        some[chance.random(count) < 0.2] = 1.0
        return some

    def limits() -> Floats:
        return np.where(chance.random(rows) < 0.5, np.inf, amounts())

    containers = Containers.empty(rows)._replace(
        node=chance.integers(-1, many, rows).astype(np.int32),
        qos=chance.integers(0, 3, rows).astype(np.int8),
        cpu_request=amounts(),
        cpu_limit=limits(),
        memory_request=amounts(),
        memory_limit=limits(),
        burst=chance.uniform(0, 2, rows),
        runs_from=chance.choice([-np.inf, 0.0, 100.0, 299.0, 300.0, 400.0], rows),
    )
    return (
        containers,
        Nodes.from_capacity(amounts(many, least=0.1), amounts(many, least=0.1)),
        amounts(),
        amounts(),
    )


@given(crowds())
@settings(max_examples=300)
def test_capacity_and_usage_always_add_up(crowd: tuple[Containers, Nodes, Floats, Floats]) -> None:
    containers, nodes, cpu, memory = crowd
    kills = step(containers, nodes, cpu=cpu, memory=memory, now=0, seconds=300)
    nearly = 1 + 1e-9
    killed = containers.killed != 0
    assert kills == killed.sum() == nodes.kills.sum() == containers.restarts.sum()
    assert (containers.cpu <= np.minimum(cpu, containers.cpu_limit) * nearly).all()
    assert (containers.memory <= np.minimum(memory, containers.memory_limit)).all()
    assert ((containers.throttled >= 0) & (containers.throttled <= 1)).all()
    for place in range(len(nodes.cpu)):
        here = containers.node == place
        assert containers.cpu[here].sum() == pytest.approx(nodes.cpu[place])
        assert nodes.cpu[place] <= nodes.cpu_capacity[place] * nearly
        assert containers.memory[here & ~killed].sum() == pytest.approx(nodes.memory[place])
        assert nodes.memory[place] <= nodes.memory_capacity[place]
        wanted = np.where(
            here & (containers.runs_from < 300) | here & killed, np.minimum(cpu, containers.cpu_limit), 0
        )
        if (containers.runs_from[here] <= 0).all() and not killed.any():
            assert nodes.cpu[place] == pytest.approx(min(wanted.sum(), nodes.cpu_capacity[place]))


@given(crowds())
@settings(max_examples=100)
def test_physics_gives_a_starved_container_at_least_its_weight(
    crowd: tuple[Containers, Nodes, Floats, Floats],
) -> None:
    containers, nodes, cpu, memory = crowd
    containers.runs_from[:] = 0
    step(containers, nodes, cpu=cpu, memory=memory, now=0, seconds=300)
    weight = np.maximum(containers.cpu_request, 0.002)
    cut = containers.cpu < np.minimum(cpu, containers.cpu_limit) * (1 - 1e-9)
    for row in np.flatnonzero(cut & (containers.node >= 0)):
        here = containers.node == containers.node[row]
        level = containers.cpu / weight
        assert (
            level[here] <= level[row] * (1 + 1e-6)
        ).all()  # none has more for its weight than a container that gets too little
