"""The builtin VPA's recommender at work: the same workload sized by `vpa` and by `trimtab`, day by day.

    python examples/simulate_vpa.py

Both run in the production operator, on the same simulated cluster, and begin with eight days of usage: the VPA's
recommender counts samples, one a minute, and at fewer takes days until its bounds are narrow enough to change anything.
"""

import asyncio
import logging

import structlog

from trimtab.lab import Scenario, Simulation, generate, generate_cluster_from_trace, load_policies

HOURS, KNOWN = 48, 8 * 86400.0


async def sized_by(strategy: str, scene: Scenario) -> None:
    """Print what the workload asks for and uses every twelve hours."""
    async with Simulation(scene, policies=load_policies(strategy), seed=1, history_seconds=KNOWN) as stage:
        for hours in range(12, HOURS + 1, 12):
            await stage.run(12 * 3600)
            (pod,) = list(stage.world.pods.values())[:1]
            now = pod.containers[0].resources
            (outcome,) = stage.outcomes().values()
            print(
                f"{strategy:8} {hours:3} h: {now.cpu_request} m, {(now.memory_request or 0) >> 20} MiB"
                f" ({outcome.state}{': ' + outcome.reason if outcome.reason else ''})"
            )


def main() -> None:
    """A web service by day, with requests that somebody guessed; a step is a quarter of an hour."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    web = generate("diurnal_web", seed=3, step=900.0, duration=KNOWN + HOURS * 3600.0)
    scene = generate_cluster_from_trace(web.to_trace(), replicas=3, seed=1)
    for strategy in ("vpa", "trimtab"):
        asyncio.run(sized_by(strategy, scene))


main()
