"""What agents would tell of simulated nodes: for which share of what they wanted containers waited, by the physics.

Left out: knobs. The lab has no kernel, so that there is none to turn.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trimtab.kube.kinds.custom import NodeReport
from trimtab.lab.simulator.world import SimulatedWorld


def simulate_reports(world: SimulatedWorld) -> Iterator[NodeReport]:
    """Of each node, as of the last step."""
    rows, physical = world.container_arrays, world.nodes.physical
    containers = rows.containers
    on = (containers.node >= 0) & (containers.runs_from <= world.now)
    nodes, many = containers.node[on], len(world.nodes.names)
    wanted = np.bincount(nodes, rows.cpu_demand[on], many)
    got = np.bincount(nodes, np.minimum(containers.cpu[on], rows.cpu_demand[on]), many)
    for node, name in enumerate(world.nodes.names):
        waited = 1.0 - float(got[node] / wanted[node]) if wanted[node] > 0 else 0.0
        full = float(physical.memory[node] / physical.memory_capacity[node])
        yield NodeReport(
            name=name,
            reported_at=world.control_time,
            pressure=(("cpu", waited), ("memory", max(0.0, full - 0.9) * 10)),
        )
