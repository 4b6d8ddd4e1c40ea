"""The card beside a file of weights: who made it, of what, by which command and settings, and how it got better.

It is made of what the run wrote down when it began, and of its figures: of nothing that was asked for later.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from trimtab import atomic_write
from trimtab.lab.training import provenance
from trimtab.lab.training.base import Learner

MAX_CURVE_POINTS = 50
"""The number of points of the curve, at most."""


class ModelCard(msgspec.Struct, frozen=True, kw_only=True, rename={"made_with": "made with"}):
    """The model card of trained weights."""

    learner: str
    command: str
    seed: int
    updates: int
    data: tuple[str, ...]
    settings: dict[str, object]
    objective: str
    better: str
    curve: tuple[tuple[int, float], ...]
    """The objective after some of the updates."""
    made_with: tuple[dict[str, str], ...]


def write_model_card(
    folder: Path, path: Path, learner: Learner, *, figures: Sequence[dict[str, float]]
) -> None:
    """Write the card of a folder's run."""
    run = provenance.read_provenance(folder)
    places = np.unique(
        np.linspace(0, len(figures) - 1, min(MAX_CURVE_POINTS, len(figures))).round().astype(int)
    )
    card = ModelCard(
        learner=run.learner,
        command=run.command,
        seed=run.seed,
        updates=learner.updates_done,
        data=run.data,
        settings=run.settings,
        objective=learner.objective,
        better="lower" if learner.lower_is_better else "higher",
        curve=tuple((int(figures[at]["update"]), round(figures[at][learner.objective], 5)) for at in places),
        made_with=run.made_with,
    )
    atomic_write.write_atomically({path: json.dumps(msgspec.to_builtins(card), indent=1) + "\n"})
