"""Select best-effort pods to evict, for both evicting strategies."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trimtab.node.model import PodView
from trimtab.node.strategies.strategy import StrategyInput
from trimtab.timing import is_recent


class EvictionSelector:
    """Selects pods, limited by a cool-down, and remembers terminating ones.

    `read_freed` returns the amount that a pod frees. A terminating pod counts as gone until
    `leaving_timeout`.
    """

    def __init__(
        self, read_freed: Callable[[StrategyInput, PodView], float], *, leaving_timeout: float
    ) -> None:
        self._read_freed = read_freed
        self._leaving_timeout = leaving_timeout
        self.reset()

    def reset(self) -> None:
        """Forget all state."""
        self._last = float("-inf")
        self._chosen: frozenset[str] = frozenset()
        self._leaving: dict[str, float] = {}

    def estimate_reclaimable(self, inputs: StrategyInput, pods: Sequence[PodView]) -> float:
        """Return the amount freed if all evictable pods were evicted."""
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
        """Return the pods to evict, least important and largest first, until `need` is met.

        During the cool-down there are none, unless all selected pods were blocked: then the next ones are
        selected at once.
        """
        is_hot = is_recent(self._last, inputs.now, within=cool_down)
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
        """Return the amount that terminating pods will free."""
        leaving = [pod for pod in pods if pod.deleting]
        self._leaving = {pod.uid: self._leaving.get(pod.uid, inputs.now) for pod in leaving}
        return sum(
            self._read_freed(inputs, pod)
            for pod in leaving
            if is_recent(self._leaving[pod.uid], inputs.now, within=self._leaving_timeout)
        )


def _list_evictable(inputs: StrategyInput, pods: Sequence[PodView]) -> list[PodView]:
    """Return the pods that can be evicted now."""
    return [
        pod
        for pod in pods
        if pod.is_evictable and not pod.deleting and pod.uid not in inputs.eviction_blocked
    ]
