"""What agents would tell of simulated nodes: for which share of what they wanted containers waited, by the physics.

Left out: knobs. The lab has no kernel, so that there is none to turn.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trimtab.kube.kinds.custom import NodeReport
from trimtab.lab.simulator.world import World


def reports(world: World) -> Iterator[NodeReport]:
    """Of each node, as of the last step."""
    rows, physical = world.rows, world.ground.physical
    containers = rows.containers
    on = (containers.node >= 0) & (containers.resumes <= world.now)
    nodes, many = containers.node[on], len(world.ground.names)
    wanted = np.bincount(nodes, rows.cpu[on], many)
    got = np.bincount(nodes, np.minimum(containers.cpu[on], rows.cpu[on]), many)
    for node, name in enumerate(world.ground.names):
        waited = 1.0 - float(got[node] / wanted[node]) if wanted[node] > 0 else 0.0
        full = float(physical.memory[node] / physical.memory_capacity[node])
        yield NodeReport(
            name=name, at=world.time, pressure=(("cpu", waited), ("memory", max(0.0, full - 0.9) * 10))
        )
