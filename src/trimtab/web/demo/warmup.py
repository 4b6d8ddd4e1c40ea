"""Compile half of the demo's kernels in a second process.

On the first start, compiling takes half of the demo's time, and one process compiles on one core. While the demo compiles
the simulated cluster, which it needs first, a second process compiles sizing and effect models; the demo then finds them
in numba's cache. If that process fails, the demo only takes longer.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from trimtab.intents.effects.inputs import InputBatch, ModelInputs
from trimtab.intents.effects.latency_model import LatencyModel
from trimtab.intents.effects.samples import EffectSample
from trimtab.sizing.strategy import strategy

CONTAINERS = 16
EPOCHS, EPOCH, SAMPLE = 3, 3600, 300
"""The number of epochs, their length and the sample interval in seconds: enough to reach every kernel of sizing."""


@contextmanager
def compile_in_background() -> Iterator[None]:
    """Compile in a second process until the block ends or everything is compiled."""
    quiet = subprocess.DEVNULL
    command = [sys.executable, "-m", __name__]
    process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)  # noqa: S603 - our own code
    try:
        yield
    finally:
        process.kill()
        process.wait()


def compile_sizing() -> None:
    """Compile sizing by sizing a few containers for a few hours."""
    sizer = strategy("trimtab", CONTAINERS)
    usage = np.linspace(0.1, 1.0, CONTAINERS)
    for t in range(0, EPOCHS * EPOCH, SAMPLE):
        sizer.observe(float(t), usage, usage * 2**30)
        sizer.recommend(float(t))


def compile_effects() -> None:
    """Compile the effect models by predicting the effect of another pod."""
    here, there = (ModelInputs(pods, 0.5, 2.0**29, 10.0, "", "", ()) for pods in (2.0, 3.0))
    model = LatencyModel.from_prior(EffectSample(0.0, here, 0.1))
    model.predict_changes(InputBatch(np.array([here[:4], there[:4]]), (here, there)), 0.1)
    model.predict_latency([here, there])


if __name__ == "__main__":
    compile_sizing()
    compile_effects()
