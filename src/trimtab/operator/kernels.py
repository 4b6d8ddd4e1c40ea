"""Compile or load the kernels that operator and scan call, which numba keeps in its cache.

An image is built with `python -m trimtab.operator.kernels`, see `trimtab.kernel_cache`.
"""

from __future__ import annotations

import os
from collections.abc import Collection

import numpy as np

from trimtab.kernel_cache import unlink_shipped_kernels
from trimtab.memory_trim import release_compiler_memory
from trimtab.recommender.cohort import StrategyCohort, StrategySpec
from trimtab.usage.prometheus.remote_read.chunks import PackedChunks
from trimtab.usage.prometheus.remote_read.framing import index_frames
from trimtab.usage.prometheus.remote_read.range_functions import evaluate_windows
from trimtab.usage.prometheus.response import read_pairs

DEFAULT_STRATEGIES = ("trimtab",)
SHIPPED_STRATEGIES = (
    *DEFAULT_STRATEGIES,
    *("vpa", "percentile", "krr", "peak", "seasonal", "autopilot-window", "autopilot-ml"),
)


def compile_kernels(strategies: Collection[str] = DEFAULT_STRATEGIES) -> None:
    """Call each kernel of these strategies, and those that read usage, once."""
    for name in strategies:
        StrategyCohort(StrategySpec.from_settings(name, {}), until=0.0).warm_up()
    index_frames(np.frombuffer(b"", np.uint8))
    nothing = PackedChunks.from_body(b"", chunks=np.empty((0, 2), np.int64), begins=np.zeros(1, np.int64))
    evaluate_windows(nothing, 0, 60_000, 300_000, True, np.empty((0, 1)))
    read_pairs(np.frombuffer(b"[]", np.uint8), np.empty(0))


def load_kernels(strategies: Collection[str] = DEFAULT_STRATEGIES) -> None:
    """Load the kernels before the data, and release LLVM, which takes 110 MiB to load them.

    If those that the image ships cannot be read, they are compiled.
    """
    try:
        compile_kernels(strategies)
    except Exception:
        # numba reads its cache with pickle, which fails in many ways on a file that is damaged or cut off.
        if not unlink_shipped_kernels(os.environ):
            raise
        compile_kernels(strategies)
    release_compiler_memory()


def compile_effects() -> None:
    """Compile the effect models by predicting the effect of another pod."""
    # Imported here, because the operator loads the kernels of sizing before most other modules.
    from trimtab.intents.effects.inputs import InputBatch, ModelInputs
    from trimtab.intents.effects.latency_model import LatencyModel
    from trimtab.intents.effects.samples import EffectSample

    here, there = (ModelInputs(pods, 0.5, 2.0**29, 10.0, "", "", ()) for pods in (2.0, 3.0))
    model = LatencyModel.from_prior(EffectSample(0.0, here, 0.1))
    model.predict_changes(InputBatch(np.array([here[:4], there[:4]]), (here, there)), 0.1)
    model.predict_latency([here, there])


if __name__ == "__main__":
    compile_kernels(SHIPPED_STRATEGIES)
    compile_effects()
