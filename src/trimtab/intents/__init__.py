"""Intents: from objectives of a workload to the cheapest actions that meet them.

The core is pure: observed state goes in, a plan comes out. Measuring, executing and storing are at the edges.
"""

from typing import TYPE_CHECKING

from trimtab.lazy import lazy_exports

if TYPE_CHECKING:
    from trimtab.intents.actuator import Actuator, IntentAction
    from trimtab.intents.constraints import PlanConstraints
    from trimtab.intents.effects.model import EffectModels
    from trimtab.intents.objective import Goal, Objective
    from trimtab.intents.planner import ExpectedOutcome, Plan, Planner, SearchBudget, create_planner
    from trimtab.intents.plugins.server import ActuatorService, PlannerService, serve_plugin
    from trimtab.intents.state import ContainerSize, PodState, TargetState

__all__ = [
    "Actuator",
    "ActuatorService",
    "ContainerSize",
    "EffectModels",
    "ExpectedOutcome",
    "Goal",
    "IntentAction",
    "Objective",
    "Plan",
    "PlanConstraints",
    "Planner",
    "PlannerService",
    "PodState",
    "SearchBudget",
    "TargetState",
    "create_planner",
    "serve_plugin",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "Actuator": "actuator",
        "ActuatorService": "plugins.server",
        "ContainerSize": "state",
        "EffectModels": "effects.model",
        "ExpectedOutcome": "planner",
        "Goal": "objective",
        "IntentAction": "actuator",
        "Objective": "objective",
        "Plan": "planner",
        "PlanConstraints": "constraints",
        "Planner": "planner",
        "PlannerService": "plugins.server",
        "PodState": "state",
        "SearchBudget": "planner",
        "TargetState": "state",
        "create_planner": "planner",
        "serve_plugin": "plugins.server",
    },
)
