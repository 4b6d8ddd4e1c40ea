"""Gymnasium environments in which recommenders of sizes are tried and trained. Importing this makes them known by id.

    import gymnasium, trimtab.lab.environments  # pip install 'trimtab[lab]'
    env = gymnasium.make("trimtab/SizingTarget-v0", hours=72)
    many = gymnasium.make_vec("trimtab/SizingVector-v0", num_envs=4096)

All take what `Course` has: `demand`, `rules`, `weights`, `hours`, `warm_up`. A number behind an id is raised when the same
actions would have other rewards.
"""

from trimtab.lazy import require_extra

with require_extra("lab", "trimtab.lab.environments"):
    import gymnasium

from trimtab.lab.environments.config import EnvironmentConfig
from trimtab.lab.environments.container_sim import RequestRules
from trimtab.lab.environments.demand import DemandSource, GeneratedDemand, MixedDemand, RecordedDemand
from trimtab.lab.environments.reward import Weights

__all__ = [
    "IDS",
    "DemandSource",
    "EnvironmentConfig",
    "GeneratedDemand",
    "MixedDemand",
    "RecordedDemand",
    "RequestRules",
    "Weights",
]

SINGLE = {
    "trimtab/Sizing-v0": "trimtab.lab.environments.sizing:SizingEnv",
    "trimtab/SizingTarget-v0": "trimtab.lab.environments.sizing:SizingTarget",
}
VECTOR = "trimtab/SizingVector-v0"
IDS = (*SINGLE, VECTOR)

for _id, _class in SINGLE.items():
    gymnasium.register(id=_id, entry_point=_class)
gymnasium.register(id=VECTOR, vector_entry_point="trimtab.lab.environments.vector:SizingVector")
