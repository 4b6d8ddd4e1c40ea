"""Which best-effort pods go first, and not too many at once: what both evicting strategies have in common."""

from __future__ import annotations

from collections.abc import Callable

from trimtab.node.picture import PodView, Tier
from trimtab.node.strategies.strategy import Scene


class Choice:
    """Chooses whom to send away, once in a while; remembers when it last did, and since when others are leaving."""

    def __init__(self) -> None:
        self._last: float | None = None
        self._chosen: frozenset[str] = frozenset()
        self._leaving: dict[str, float] = {}

    def victims(
        self,
        scene: Scene,
        *,
        used: Callable[[PodView], float],
        freed: Callable[[PodView], float],
        need: float,
        cool_down: float,
        patience: float,
    ) -> list[PodView]:
        """The least important first, of those the greatest users, until enough is freed; nobody until it has cooled down.

        Who is leaving counts as gone, for as long as patience lasts; who may not leave is passed over, at once, or the
        next one would never be asked to.
        """
        is_hot = self._last is not None and scene.now - self._last < cool_down
        if is_hot and not self._chosen <= scene.staying:
            return []
        pods = scene.view.of_tier(Tier.BE)
        leaving = [pod for pod in pods if pod.deleting]
        self._leaving = {pod.uid: self._leaving.get(pod.uid, scene.now) for pod in leaving}
        need -= sum(freed(pod) for pod in leaving if scene.now - self._leaving[pod.uid] < patience)
        chosen: list[PodView] = []
        able = [pod for pod in pods if pod.can_go and not pod.deleting and pod.uid not in scene.staying]
        for pod in sorted(able, key=lambda pod: (pod.priority, -used(pod), pod.uid)):
            if need > 0 and freed(pod) > 0:
                need -= freed(pod)
                chosen.append(pod)
        if chosen:
            self._last, self._chosen = scene.now, frozenset(pod.uid for pod in chosen)
        return chosen
