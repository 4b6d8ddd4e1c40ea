"""Which best-effort pods go first, and not too many at once: what both evicting strategies have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trimtab.node.model import PodView
from trimtab.node.strategies.strategy import Scene


class Choice:
    """Chooses whom to send away, once in a while; remembers when it last did, and since when others are leaving.

    `freed` is what the node gets back from a pod. Who is leaving counts as gone, for as long as patience lasts.
    """

    def __init__(self, freed: Callable[[Scene, PodView], float], *, patience: float) -> None:
        self._freed = freed
        self._patience = patience
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._last: float | None = None
        self._chosen: frozenset[str] = frozenset()
        self._leaving: dict[str, float] = {}

    def reach(self, scene: Scene, pods: Sequence[PodView]) -> float:
        """Return what there would be to gain if every pod left that can."""
        return self._going(scene, pods) + sum(self._freed(scene, pod) for pod in _able(scene, pods))

    def victims(
        self,
        scene: Scene,
        pods: Sequence[PodView],
        *,
        used: Callable[[PodView], float],
        need: float,
        cool_down: float,
    ) -> list[PodView]:
        """The least important first, of those the greatest users, until enough is freed; nobody until it has cooled down.

        Who may not leave is passed over, at once, or the next one would never be asked to.
        """
        is_hot = self._last is not None and scene.now - self._last < cool_down
        if is_hot and not self._chosen <= scene.staying:
            return []
        need -= self._going(scene, pods)
        chosen: list[PodView] = []
        for pod in sorted(_able(scene, pods), key=lambda pod: (pod.priority, -used(pod), pod.uid)):
            if need > 0 and (freed := self._freed(scene, pod)) > 0:
                need -= freed
                chosen.append(pod)
        if chosen:
            self._last, self._chosen = scene.now, frozenset(pod.uid for pod in chosen)
        return chosen

    def _going(self, scene: Scene, pods: Sequence[PodView]) -> float:
        """Return what those will bring who are leaving already."""
        leaving = [pod for pod in pods if pod.deleting]
        self._leaving = {pod.uid: self._leaving.get(pod.uid, scene.now) for pod in leaving}
        return sum(
            self._freed(scene, pod) for pod in leaving if scene.now - self._leaving[pod.uid] < self._patience
        )


def _able(scene: Scene, pods: Sequence[PodView]) -> list[PodView]:
    """Return those that can be sent away now."""
    return [pod for pod in pods if pod.can_go and not pod.deleting and pod.uid not in scene.staying]
