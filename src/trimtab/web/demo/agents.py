"""Simulate the reports of node agents: the pressure on each node, from the simulated usage.

Reports have no knobs, because the lab has no kernel.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trimtab.kube.kinds.custom import NodeReport
from trimtab.lab.simulator.world import SimulatedWorld


def simulate_reports(world: SimulatedWorld) -> Iterator[NodeReport]:
    """Yield a report for each node, as of the last step."""
    rows, physical = world.container_arrays, world.nodes.physical
    containers = rows.containers
    is_running = (containers.node >= 0) & (containers.runs_from <= world.now)
    nodes, node_count = containers.node[is_running], len(world.nodes.names)
    wanted = np.bincount(nodes, rows.cpu_demand[is_running], node_count)
    got = np.bincount(nodes, np.minimum(containers.cpu[is_running], rows.cpu_demand[is_running]), node_count)
    for node, name in enumerate(world.nodes.names):
        waited = 1.0 - float(got[node] / wanted[node]) if wanted[node] > 0 else 0.0
        full = float(physical.memory[node] / physical.memory_capacity[node])
        yield NodeReport(
            name=name,
            reported_at=world.control_time,
            pressure=(("cpu", waited), ("memory", max(0.0, full - 0.9) * 10)),
        )
