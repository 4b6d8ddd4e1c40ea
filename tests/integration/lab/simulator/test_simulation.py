"""The operator of production on a simulated cluster, in simulated time."""

import asyncio
import hashlib
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np

from lab.simulator.test_simulation import HOUR, auto, office
from trimtab.lab.simulator.metrics import ClusterMetrics
from trimtab.lab.simulator.scenario import Scenario
from trimtab.lab.simulator.simulation import Simulation


async def played(on: Scenario, hours: float, *, seed: int = 7) -> tuple[list[ClusterMetrics], Simulation]:
    moments: list[ClusterMetrics] = []
    async with Simulation(on, policies={"all": auto()}, seed=seed) as stage:
        stage.subscribe(moments.append)
        await stage.run(hours * HOUR)
        return moments, stage


def digest(moments: list[ClusterMetrics], stage: Simulation) -> str:
    """Return a hash of everything observable, with the arrays to the last bit."""
    found = hashlib.blake2b(repr(moments).encode())
    for array in (*stage.world.container_arrays.containers, stage.world.latencies):
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def test_simulation_repeats_bit_for_bit_in_any_process() -> None:
    noisy = replace(office(), noise=0.3)
    here = digest(*asyncio.run(played(noisy, 4)))
    other = digest(*asyncio.run(played(noisy, 4, seed=8)))
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": os.pathsep.join(sys.path)}
    there = subprocess.run(
        [sys.executable, __file__], env=environment, capture_output=True, text=True, check=True
    ).stdout.split()[-1]
    assert here == there
    assert here != other


if __name__ == "__main__":
    print(digest(*asyncio.run(played(replace(office(), noise=0.3), 4))))
