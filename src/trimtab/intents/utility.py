"""Utility: how much of what is wanted is had, when not all of it can be: several attributes in one number.

Each objective gives 1 when it is reached and less the further it is missed; they count by their weights. It falls
slowly, so that something is done also where what is wanted is far out of reach.
"""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.intents.objective import Objective


def utility(objectives: Sequence[Objective], deficits: Sequence[float]) -> float:
    """Between 0 and 1; 1 is all."""
    whole = had = 0.0
    for objective, deficit in zip(objectives, deficits, strict=True):
        whole += objective.weight
        had += objective.weight * (1.0 if deficit <= 0 else 1.0 / (1.0 + deficit))
    return had / whole if whole > 0 else 1.0
