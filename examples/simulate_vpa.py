"""Size the same workload by the strategies `vpa` and `trimtab`, and compare them every twelve hours.

    python examples/simulate_vpa.py

Both run in the production operator on the same simulated cluster, with eight days of usage: with less, VPA's recommender
takes days until its bounds are narrow enough to change anything.
"""

import asyncio
import logging

import structlog

from trimtab.lab import Scenario, Simulation, generate, generate_cluster_from_trace, load_policies

HOURS, HISTORY = 48, 8 * 86400.0


async def sized_by(strategy: str, scenario: Scenario) -> None:
    """Print the requests and the state of the workload every twelve hours."""
    async with Simulation(
        scenario, policies=load_policies(strategy), seed=1, history_seconds=HISTORY
    ) as simulation:
        for hours in range(12, HOURS + 1, 12):
            await simulation.run(12 * 3600)
            (pod,) = list(simulation.world.pods.values())[:1]
            now = pod.containers[0].resources
            (outcome,) = simulation.outcomes().values()
            print(
                f"{strategy:8} {hours:3} h: {now.cpu_request} m, {(now.memory_request or 0) >> 20} MiB"
                f" ({outcome.state}{': ' + outcome.reason if outcome.reason else ''})"
            )


def main() -> None:
    """Use a web service that is busy by day, with guessed requests; a step is a quarter of an hour."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    web = generate("diurnal_web", seed=3, step=900.0, duration=HISTORY + HOURS * 3600.0)
    scenario = generate_cluster_from_trace(web.to_trace(), replicas=3, seed=1)
    for strategy in ("vpa", "trimtab"):
        asyncio.run(sized_by(strategy, scenario))


main()
