"""How good recommendations are while they are in use: what a container used, as a share of what was recommended.

Counted once a turn, against the recommendation of before that turn, so that no number is judged by what it was made
from. A share above 1 is a container that was recommended too little.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from trimtab.operator.cohort import Used
from trimtab.operator.metrics import Metrics
from trimtab.sizing.recommendation import Recommendation


def compare(
    recommendations: Iterable[Recommendation],
    used: Callable[[str], Used | None],
    *,
    policy: str,
    metrics: Metrics,
) -> None:
    """Hold the containers of a workload against what is recommended for them; `used` knows one by its name."""
    for each in recommendations:
        found = used(each.container) if each.held is None else None
        if found is None:
            continue
        shares = {
            "cpu": (found.cpu * 1000, each.target.cpu_request),
            "memory": (found.memory, each.target.memory_request),
        }
        for resource, (amount, recommended) in shares.items():
            if recommended and not math.isnan(amount):
                metrics.usage_ratio.labels(policy, resource).observe(amount / recommended)
