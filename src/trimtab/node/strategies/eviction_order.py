"""Which best-effort pods go first, and not too many at once: what both evicting strategies have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trimtab.node.model import PodView
from trimtab.node.strategies.strategy import StrategyInput


class EvictionSelector:
    """Chooses whom to send away, once in a while; remembers when it last did, and since when others are leaving.

    `freed` is what the node gets back from a pod. Who is leaving counts as gone, for as long as patience lasts.
    """

    def __init__(
        self, read_freed: Callable[[StrategyInput, PodView], float], *, leaving_timeout: float
    ) -> None:
        self._read_freed = read_freed
        self._leaving_timeout = leaving_timeout
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._last: float | None = None
        self._chosen: frozenset[str] = frozenset()
        self._leaving: dict[str, float] = {}

    def estimate_reclaimable(self, inputs: StrategyInput, pods: Sequence[PodView]) -> float:
        """Return what there would be to gain if every pod left that can."""
        return self._sum_leaving(inputs, pods) + sum(
            self._read_freed(inputs, pod) for pod in _list_evictable(inputs, pods)
        )

    def select_victims(
        self,
        inputs: StrategyInput,
        pods: Sequence[PodView],
        *,
        used: Callable[[PodView], float],
        need: float,
        cool_down: float,
    ) -> list[PodView]:
        """The least important first, of those the greatest users, until enough is freed; nobody until it has cooled down.

        Who may not leave is passed over, at once, or the next one would never be asked to.
        """
        is_hot = self._last is not None and inputs.now - self._last < cool_down
        if is_hot and not self._chosen <= inputs.eviction_blocked:
            return []
        need -= self._sum_leaving(inputs, pods)
        chosen: list[PodView] = []
        for pod in sorted(_list_evictable(inputs, pods), key=lambda pod: (pod.priority, -used(pod), pod.uid)):
            if need > 0 and (freed := self._read_freed(inputs, pod)) > 0:
                need -= freed
                chosen.append(pod)
        if chosen:
            self._last, self._chosen = inputs.now, frozenset(pod.uid for pod in chosen)
        return chosen

    def _sum_leaving(self, inputs: StrategyInput, pods: Sequence[PodView]) -> float:
        """Return what those will bring who are leaving already."""
        leaving = [pod for pod in pods if pod.deleting]
        self._leaving = {pod.uid: self._leaving.get(pod.uid, inputs.now) for pod in leaving}
        return sum(
            self._read_freed(inputs, pod)
            for pod in leaving
            if inputs.now - self._leaving[pod.uid] < self._leaving_timeout
        )


def _list_evictable(inputs: StrategyInput, pods: Sequence[PodView]) -> list[PodView]:
    """Return those that can be sent away now."""
    return [
        pod
        for pod in pods
        if pod.is_evictable and not pod.deleting and pod.uid not in inputs.eviction_blocked
    ]
