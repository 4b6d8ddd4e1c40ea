"""A planner plugin for Trimtab in Python: it plans as the built-in planner does, and takes one action at a time.

Use it to see the effect of each action before the next one. Run it beside the operator,

    python examples/plugins/python/one_step.py --register 127.0.0.1:9444

and name it in the operator's configuration, for all namespaces or for some:

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
    """Return only the first action of a plan."""

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
        waiting = f"{len(plan.actions) - 1} more actions wait for the effect of the first"
        return msgspec.structs.replace(plan, actions=plan.actions[:1], why=(*plan.why, waiting))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--register", default="127.0.0.1:9444", help="the address at which the operator accepts registrations"
    )
    parser.add_argument("--listen", default="127.0.0.1:0", help="the address to listen on")
    options = parser.parse_args()
    service = PlannerService(OneStep())
    with serve_plugin(
        service, name="one-step", address=options.listen, register_at=options.register
    ) as plugin:
        print(f"listening at {plugin.endpoint}", flush=True)
        plugin.wait()


if __name__ == "__main__":
    main()
