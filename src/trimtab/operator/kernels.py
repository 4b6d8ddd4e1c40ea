"""Compile the kernels that operator and scan call.

An image is built with `python -m trimtab.operator.kernels FOLDER`, which writes all of them to a library, see
`trimtab.kernel`.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path

import numpy as np

from trimtab.kernel import DISPATCHERS, shipped_library
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
    nothing = PackedChunks.from_padded(b"", chunks=np.empty((0, 2), np.int64), begins=np.zeros(1, np.int64))
    evaluate_windows(nothing, 0, 60_000, 300_000, True, np.empty((0, 1)))
    read_pairs(np.frombuffer(b"[]", np.uint8), np.empty(0))


def load_kernels(strategies: Collection[str] = DEFAULT_STRATEGIES) -> None:
    """Load the kernels before the data, and release LLVM, which takes 110 MiB to load them.

    Where the image ships their library, nothing needs to be loaded.
    """
    if shipped_library() is None:
        compile_kernels(strategies)
        release_compiler_memory()


def compile_effects() -> None:
    """Compile the effect models by predicting the effect of another pod."""
    # Imported here, because the operator loads the kernels of sizing before most other modules.
    from trimtab.api.kpiprofile import KPIType
    from trimtab.intents.effects.inputs import InputBatch, ModelInputs
    from trimtab.intents.effects.latency_model import LatencyModel
    from trimtab.intents.effects.power_law_model import PowerLawModel
    from trimtab.intents.effects.samples import EffectSample

    here, there = (ModelInputs(pods, 0.5, 2.0**29, 10.0, "", "", ()) for pods in (2.0, 3.0))
    sample, batch = EffectSample(0.0, here, 0.1), InputBatch(np.array([here[:4], there[:4]]), (here, there))
    model = LatencyModel.from_prior(sample)
    model.predict_changes(batch, 0.1)
    model.predict_latency([here, there])
    power = PowerLawModel.fit_samples(KPIType.POWER, [sample], now=0.0)
    power.predict_changes(batch, 0.1)


def build(folder: Path) -> None:
    """Write the library of all kernels."""
    # Imported here, because the library's users run without numba.
    from trimtab.kernel_builder import build_library

    compile_kernels(SHIPPED_STRATEGIES)
    compile_effects()
    build_library(folder, DISPATCHERS)


if __name__ == "__main__":
    build(Path(sys.argv[1]))
