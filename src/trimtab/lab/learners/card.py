"""The card beside a file of weights: who made it, of what, by which command, and how it got better."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np

from trimtab import __version__, files
from trimtab.lab.learners.learner import Learner

POINTS = 50
"""Of the curve, at most."""


def write(
    path: Path, learner: Learner, *, command: str, data: Sequence[str], figures: Sequence[dict[str, float]]
) -> None:
    """Write the card."""
    places = np.unique(np.linspace(0, len(figures) - 1, min(POINTS, len(figures))).round().astype(int))
    told = {
        "learner": learner.name,
        "command": command,
        "seed": learner.seed,
        "updates": learner.done,
        "data": list(data),
        "objective": learner.objective,
        "better": "lower" if learner.lower_is_better else "higher",
        "curve": [[int(figures[at]["update"]), round(figures[at][learner.objective], 5)] for at in places],
        "made with": {
            "trimtab": __version__,
            "jax": jax.__version__,
            "python": platform.python_version(),
            "device": jax.devices()[0].device_kind,
        },
    }
    files.write({path: json.dumps(told, indent=1) + "\n"})
