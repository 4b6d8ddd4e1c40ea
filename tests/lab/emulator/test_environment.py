"""Actions in the environment of a real pod. The pod itself is driven in test_on_node.py."""

import numpy as np

from trimtab.lab.emulator.environment import ignore_small_changes
from trimtab.lab.environments.sizing import apply_updater_rule

MIB = 2.0**20


def test_emulated_environment_keeps_sizes_without_a_recommendation_or_with_a_small_change() -> None:
    """As in the simulated one: a strategy that has not seen enough says NaN, and a tenth is the least change."""
    had = (1.0, 100 * MIB)
    unknown, near = np.full(4, np.nan), np.array([90, 95, 99, 95]) * MIB
    assert ignore_small_changes(had, apply_updater_rule(np.array([unknown, near]), had)) == [*had]
    assert ignore_small_changes(had, apply_updater_rule(np.array([[0.1, 0.5, 0.9, 0.5], near]), had)) == [
        0.5,
        100 * MIB,
    ]
