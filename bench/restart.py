"""A hundred million samples and a restart in the middle, for the default strategy or any other.

    make bench BENCH=restart
    .venv/bin/python bench/restart.py --strategy vpa

One strategy sees all samples. Another is made from its state half-way and sees the rest. Compared are all answers once
an hour of usage from then on, and the state at the end, bit for bit. The cost is printed as container-samples a second
of CPU time (CPU and memory together are one), answers included.
"""

import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from trimtab.sizing import Strategy, Targets, strategy

CONTAINERS, STEPS, SECONDS = 20_000, 2_500, 600.0
VARIETY = 37
"""Rows of usage that are drawn; they come back in an order of their own for each resource."""
ASK_EVERY = 6

Rows = Iterator[tuple[float, Any, Any]]
console = Console()


def usage(containers: int, steps: range) -> Rows:
    draw = np.random.default_rng(0)
    cpu = draw.lognormal(-2, 1, containers) * draw.lognormal(0, 0.5, (VARIETY, containers))
    memory = draw.lognormal(20, 1, containers) * draw.uniform(0.8, 1.2, (VARIETY, containers))
    for step in track(steps, console=Console(stderr=True)):
        yield step * SECONDS, cpu[step % VARIETY], memory[step * step % VARIETY]


def numbers(sizes: Targets) -> bytes:
    bounds = (sizes.cpu, sizes.memory)
    return b"".join(part.tobytes() for bound in bounds for part in (bound.lower, bound.target, bound.upper))


def show(sizer: Strategy[Any], rows: Rows) -> None:
    for t, cpu, memory in rows:
        sizer.observe(t, cpu, memory)


def differences(steady: Strategy[Any], restarted: Strategy[Any], rows: Rows) -> int:
    """Return the number of hours whose answers differ."""
    found = 0
    for step, (t, cpu, memory) in enumerate(rows):
        steady.observe(t, cpu, memory)
        restarted.observe(t, cpu, memory)
        if step % ASK_EVERY == 0:
            found += numbers(steady.recommend(t)) != numbers(restarted.recommend(t))
    return found


def main() -> None:
    parser = ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--strategy", default="trimtab")
    parser.add_argument("--containers", type=int, default=CONTAINERS)
    given = parser.parse_args()
    half = STEPS // 2
    steady = strategy(given.strategy, containers=given.containers)
    begun = time.process_time()
    show(steady, usage(given.containers, range(half)))
    restarted = strategy(given.strategy, containers=given.containers)
    restarted.restore(steady.state())
    differing = differences(steady, restarted, usage(given.containers, range(half, STEPS)))
    spent = time.process_time() - begun
    same = differing == 0 and steady.state() == restarted.state()
    seen = given.containers * (half + 2 * (STEPS - half))
    console.print(
        f"{given.strategy}: {2 * given.containers * STEPS / 1e6:.0f} million samples and a restart in the middle: "
        f"{'every answer is the same, and so is the state' if same else f'{differing} hours differ'}; "
        f"{seen / spent / 1e6:.1f} million container-samples/s"
    )
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
