"""Which best-effort pods go first, and not too many at once: what both evicting strategies have in common."""

from __future__ import annotations

from collections.abc import Callable

from trimtab.node.picture import PodView, Tier
from trimtab.node.strategies.strategy import Scene


class CoolDown:
    """Lets something happen once in a while."""

    def __init__(self) -> None:
        self._last: float | None = None

    def is_over(self, now: float, seconds: float) -> bool:
        return self._last is None or now - self._last >= seconds

    def start(self, now: float) -> None:
        self._last = now


def victims(
    scene: Scene, *, used: Callable[[PodView], float], freed: Callable[[PodView], float], need: float
) -> list[PodView]:
    """The least important first, of those the greatest users, until enough is freed.

    Who is leaving counts as gone; who may not leave is passed over, or the next one would never be asked to.
    """
    chosen: list[PodView] = []
    there = [
        pod
        for pod in scene.view.of_tier(Tier.BE)
        if pod.deleting or (pod.can_go and pod.uid not in scene.staying)
    ]
    for pod in sorted(there, key=lambda pod: (not pod.deleting, pod.priority, -used(pod), pod.uid)):
        if need <= 0:
            break
        need -= freed(pod)
        if not pod.deleting and freed(pod) > 0:
            chosen.append(pod)
    return chosen
