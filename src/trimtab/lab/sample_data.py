"""A small made-up fleet, so that a back-test can be tried without any recording: two weeks, a sample each five minutes.

Four kinds of container: a web service that follows the day, a batch job each night, one that leaks memory until it is
restarted, one that is idle but for spikes. Left out is realism: the workload generators are for that.
"""

from __future__ import annotations

import numpy as np

from trimtab.usage.trace import Floats, Trace

STEP, DAYS = 300.0, 14
MIB = 2.0**20
KINDS = ("web", "batch", "leak", "spiky")


def generate_sample_trace(containers: int = 40, *, seed: int = 1) -> Trace:
    """The same fleet for the same seed."""
    draw = np.random.default_rng(seed)
    hours = np.arange(int(DAYS * 86400 / STEP)) * STEP / 3600
    columns = [_generate_container(KINDS[number % len(KINDS)], hours, draw) for number in range(containers)]
    return Trace(
        names=tuple(f"{KINDS[number % len(KINDS)]}-{number // len(KINDS)}" for number in range(containers)),
        start=0.0,
        step=STEP,
        cpu=np.stack([cpu for cpu, _ in columns], axis=1),
        memory=np.stack([memory for _, memory in columns], axis=1) * MIB,
    )


def _generate_container(kind: str, hours: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    size = rng.lognormal(-1.0, 0.8)
    noise = rng.lognormal(0.0, 0.12, len(hours))
    steady = 200 * size * (1 + 0.02 * rng.standard_normal(len(hours)))
    day = 0.5 - 0.5 * np.cos(2 * np.pi * (hours - rng.uniform(2, 5)) / 24)
    if kind == "web":
        return size * (0.2 + day**2) * noise, steady * (1 + 0.2 * day)
    if kind == "batch":
        running = (hours % 24 >= 2) & (hours % 24 < 4)
        return size * np.where(running, 2.0, 0.01) * noise, steady * np.where(running, 4.0, 1.0)
    if kind == "leak":
        return size * 0.3 * noise, steady * (1 + (hours % 60) / 60)
    spikes = rng.random(len(hours)) < 0.02
    return size * np.where(spikes, 1.0, 0.05) * noise, steady
