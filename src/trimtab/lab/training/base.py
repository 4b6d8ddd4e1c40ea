"""The contract of a learner with the training loop: update, report figures, save and restore.

An update draws all its chance from the seed and its own number. So a learner that is restored after update n goes on
bit for bit as the one that was never ended.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import numpy as np

from trimtab.lab.training.provenance import describe_settings
from trimtab.sizing.state import Array


class Learner(ABC):
    """A learner improves its parameters in updates."""

    name: ClassVar[str]
    objective: ClassVar[str]
    """The figure of an update by which the learner is judged."""
    lower_is_better: ClassVar[bool]

    tree: Any
    """All that is learned: parameters and the state of the optimiser."""
    config: Any
    """The training settings, as a data class."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.updates_done = 0
        """Updates so far."""

    def make_rng(self, *more: int) -> np.random.Generator:
        """Return the random generator of the present update."""
        return np.random.default_rng([self.seed, self.updates_done, *more])

    def update(self) -> dict[str, float]:
        """Run one more update, and return its figures."""
        figures = self.learn()
        self.updates_done += 1
        return figures

    @property
    def settings(self) -> Any:
        """Return the settings that shape what is learned, beside the seed, as plain JSON."""
        return {"plan": describe_settings(self.config)}

    @abstractmethod
    def learn(self) -> dict[str, float]:
        """Carry out one update."""

    @abstractmethod
    def export_weights(self) -> dict[str, Array]:
        """Return the weights that a strategy needs."""

    def arrays(self) -> dict[str, Array]:
        """Return the arrays that a checkpoint keeps."""
        leaves = jax.tree_util.tree_leaves(self.tree)
        return {
            "learner": np.array(self.name),
            "done": np.array(self.updates_done),
            **{f"tree.{at}": np.asarray(leaf) for at, leaf in enumerate(leaves)},
        }

    def load_arrays(self, arrays: Mapping[str, Array]) -> None:
        """Continue from what `arrays` returned; raise ValueError if it was another learner's."""
        leaves, structure = jax.tree_util.tree_flatten(self.tree)
        kept = [arrays[f"tree.{at}"] for at in range(len(leaves)) if f"tree.{at}" in arrays]
        same = [new.shape == np.shape(old) for new, old in zip(kept, leaves, strict=False)]
        if str(arrays["learner"]) != self.name or len(kept) != len(leaves) or not all(same):
            raise ValueError("the checkpoint is from another learner or from other settings")
        self.tree = jax.tree_util.tree_unflatten(structure, kept)
        self.updates_done = int(arrays["done"])
