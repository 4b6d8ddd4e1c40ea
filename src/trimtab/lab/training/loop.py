"""The training loop: updates, their figures, and checkpoints from which an interrupted run resumes.

A run has a folder: `run.json` with its settings, `checkpoint.npz` with the learner's state, `figures.csv` with a row
an update, and TensorBoard's logs. A checkpoint is written beside the old one and then replaces it, so that it is
always whole. On resume, figures are truncated to the checkpoint: no update is reported twice.
"""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from trimtab.atomic_write import replace_atomically
from trimtab.errors import TrimtabError
from trimtab.lab.training import provenance
from trimtab.lab.training.base import Learner
from trimtab.lab.training.provenance import Provenance
from trimtab.sizing.state import Array

CHECKPOINT, FIGURES = "checkpoint.npz", "figures.csv"
UpdateCallback = Callable[[int, dict[str, float]], None]
"""Called after each update with its number and its figures."""


def train(
    learner: Learner,
    folder: Path,
    *,
    updates: int,
    checkpoint_every: int = 5,
    on_update: UpdateCallback | None = None,
    command: str = "",
    data: Sequence[str] = (),
) -> list[dict[str, float]]:
    """Train until this many updates are done, from the folder's checkpoint if it has one, and return the figures of all
    updates.

    `command` and `data` say in words what the run is, for its card. A run that was begun with anything else is refused.
    """
    from tensorboardX import SummaryWriter

    folder.mkdir(parents=True, exist_ok=True)
    asked = Provenance(
        learner=learner.name, seed=learner.seed, command=command, data=tuple(data), settings=learner.settings
    )
    provenance.record_start(folder, asked, resumes=(folder / CHECKPOINT).exists())
    figures = _restore(learner, folder)
    with SummaryWriter(str(folder), purge_step=learner.updates_done) as board:
        while learner.updates_done < updates:
            now = learner.update()
            figures.append({"update": float(learner.updates_done), **now})
            for name, value in now.items():
                board.add_scalar(name.replace(" ", "_"), value, learner.updates_done)
            if learner.updates_done % checkpoint_every == 0 or learner.updates_done == updates:
                _write_figures(folder / FIGURES, figures)
                _write_arrays(folder / CHECKPOINT, learner.arrays())
            if on_update is not None:
                on_update(learner.updates_done, now)
    return figures


def write_weights(learner: Learner, path: Path) -> None:
    """Write the weights that a strategy needs from a learner."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _write_arrays(path, learner.export_weights())


def _restore(learner: Learner, folder: Path) -> list[dict[str, float]]:
    checkpoint = folder / CHECKPOINT
    if not checkpoint.exists():
        return []
    try:
        with np.load(checkpoint, allow_pickle=False) as found:
            arrays = {name: found[name] for name in found.files}
        with (folder / FIGURES).open(newline="") as rows:
            kept = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(rows)]
        learner.load_arrays(arrays)
        return [row for row in kept if row["update"] <= learner.updates_done]
    except (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile) as error:
        raise TrimtabError(
            f"{checkpoint}: the run cannot be continued: {error}; name another folder"
        ) from None


def _write_arrays(path: Path, arrays: dict[str, Array]) -> None:
    with replace_atomically(path) as place, place.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def _write_figures(path: Path, figures: list[dict[str, float]]) -> None:
    lines = [",".join(figures[0]), *(",".join(repr(value) for value in row.values()) for row in figures)]
    with replace_atomically(path) as place:
        place.write_text("\n".join([*lines, ""]))
