"""Half of what the demo counts with, compiled by a process beside it.

Where nothing is compiled yet, that is half of the time which the demo takes, and Python compiles on one core. So while the
demo itself compiles the simulated cluster, which it needs first, a second process compiles sizing and the effects of
deeds; the demo finds them in numba's cache when it gets there. Whatever becomes of that process costs time only.
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
"""Hours that are seen of them, in seconds and samples: enough for every part of sizing to have its turn."""


@contextmanager
def compile_in_background() -> Iterator[None]:
    """While the block goes on, or until all is compiled."""
    quiet = subprocess.DEVNULL
    ourselves = [sys.executable, "-m", __name__]
    beside = subprocess.Popen(ourselves, stdin=quiet, stdout=quiet, stderr=quiet)  # noqa: S603 - our own code
    try:
        yield
    finally:
        beside.kill()
        beside.wait()


def compile_sizing() -> None:
    """By sizing a few containers for a few hours."""
    sizer = strategy("trimtab", CONTAINERS)
    usage = np.linspace(0.1, 1.0, CONTAINERS)
    for t in range(0, EPOCHS * EPOCH, SAMPLE):
        sizer.observe(float(t), usage, usage * 2**30)
        sizer.recommend(float(t))


def compile_effects() -> None:
    """By asking of one service what another pod would bring it."""
    here, there = (ModelInputs(pods, 0.5, 2.0**29, 10.0, "", "", ()) for pods in (2.0, 3.0))
    model = LatencyModel.from_prior(EffectSample(0.0, here, 0.1))
    model.predict_changes(InputBatch(np.array([here[:4], there[:4]]), (here, there)), 0.1)
    model.predict_latency([here, there])


if __name__ == "__main__":
    compile_sizing()
    compile_effects()
