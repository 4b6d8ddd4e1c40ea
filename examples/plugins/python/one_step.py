"""A planner plugin for Trimtab in Python: it plans as Trimtab does, and carries out one step at a time.

Who wants to see what each deed brings before the next is done, runs this beside the operator,

    python examples/plugins/python/one_step.py --register 127.0.0.1:9444

and names it in the operator's configuration, for all namespaces or for some:

    intents:
      planners: {shop: one-step}
      plugins: {address: "127.0.0.1:9444"}
"""

import argparse
from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from trimtab.intents import (
    Actuator,
    EffectModels,
    Goal,
    Plan,
    PlanConstraints,
    PlannerService,
    SearchBudget,
    TargetState,
    create_planner,
    serve_plugin,
)
from trimtab.plugins import Settings


class OneStep:
    """Of a plan of many deeds only the first."""

    settings_type: ClassVar[type[Settings]] = Settings

    def __init__(self) -> None:
        self._planner = create_planner("astar")

    def plan(
        self,
        state: TargetState,
        goal: Goal,
        *,
        actuators: Sequence[Actuator],
        effects: EffectModels,
        limits: PlanConstraints,
        now: float,
        budget: SearchBudget | None = None,
    ) -> Plan:
        known: dict[str, Any] = {"actuators": actuators, "effects": effects, "limits": limits}
        plan = self._planner.plan(state, goal, **known, now=now, budget=budget or SearchBudget())
        if len(plan.actions) < 2:
            return plan
        left_out = f"{len(plan.actions) - 1} more deeds wait for what the first brings"
        return msgspec.structs.replace(plan, actions=plan.actions[:1], why=(*plan.why, left_out))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--register", default="127.0.0.1:9444", help="where the operator takes registrations")
    parser.add_argument("--listen", default="127.0.0.1:0", help="where to listen")
    told = parser.parse_args()
    service = PlannerService(OneStep())
    with serve_plugin(service, name="one-step", address=told.listen, register_at=told.register) as plugin:
        print(f"listening at {plugin.endpoint}", flush=True)
        plugin.wait()


if __name__ == "__main__":
    main()
