"""Change the size of two workloads back and forth, in place and by rollout, under faults.

The trials here are the same on the real node and on paper, for seconds and at length.
"""

import asyncio
import random
import time

from harness.builders.busybox_workloads import plods, policy, size, template, workload
from harness.e2e.e2e_env import Estate, eventually
from trimtab.store import Store

IN_PLACE, ROLLED = ("Deployment", "canaried"), ("StatefulSet", "rolled")
LESS, MORE = 40, 60
"""The two sizes in millicores between which the recommendation alternates."""


class Rollouts:
    """Both workloads of an estate; they begin with `LESS`."""

    def __init__(self, estate: Estate, *, patience: float) -> None:
        self._estate = estate
        self._patience = patience
        strategy = {"name": "file", "settings": {"file": estate.recommend_size(cpu=LESS)}}
        rolls = {"template": "Always", "allowRecreate": True}
        small = size(f"{LESS}m", "32Mi")
        hardly = plods(rest=0.5)  # what they use is measured, and decides nothing
        estate.apply(
            policy("in-place", strategy=strategy, observation="2s"),
            policy("by-rollout", strategy=strategy, update=rolls, observation="2s"),
            workload(*IN_PLACE, template(hardly, app="canaried", size=small), policy="in-place", replicas=3),
            workload(*ROLLED, template(hardly, app="rolled", size=small), policy="by-rollout", replicas=2),
        )

    def settle(self) -> None:
        """Wait until both have begun."""
        self._settle(LESS)

    # Trials

    def apply_every_change_once(self, *, kills: int, within: float) -> int:
        """Leaders are killed in the midst, each within so many seconds of its term; the answer: changes made so far."""
        self.settle()
        estate, target, changes = self._estate, LESS, 0
        before = self._generations()
        template_before = estate.get(*ROLLED)["metadata"]["generation"]
        for moment in _moments(kills, within=within):
            if self._are_settled(target):
                target = self._recommend_other_size()
                changes += 1
            self._kill_a_leader(after=moment)
        self._settle(target)
        assert estate.mark(*IN_PLACE, "reverted") == estate.mark(*ROLLED, "reverted") == {}
        # A pod's generation grows with each change of its spec, so the API server itself has counted.
        assert self._generations() == {name: generation + changes for name, generation in before.items()}
        assert estate.get(*ROLLED)["metadata"]["generation"] == template_before + changes
        for _, name in (IN_PLACE, ROLLED):
            for what in ("applying", "applied"):
                assert asyncio.run(self._recommendations(name, what)) <= changes
        return changes

    def wait_for_usage(self, *, seconds: float) -> None:
        """Prometheus is away: nothing is changed, and all goes on when it is back."""
        estate = self._estate
        estate.prometheus.kill()
        try:
            eventually(
                lambda: estate.condition("in-place", "MetricsAvailable") == "False",
                what="a status that says so",
            )
            target = self._recommend_other_size()
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                assert target not in estate.sizes("canaried") + estate.sizes("rolled")
                time.sleep(min(1.0, seconds))
        finally:
            estate.prometheus.start()  # for the next trial needs it
        eventually(lambda: estate.condition("in-place", "MetricsAvailable") == "True", what="usage again")
        self._settle(target)

    def wait_for_the_api_server(self, *, seconds: float) -> None:
        """It is away from the midst of a change, which goes on when it is back."""
        estate = self._estate
        target = self._recommend_other_size()
        eventually(lambda: bool(estate.mark(*IN_PLACE, "change")), what="a change under way")
        estate.cluster.kill_apiserver()
        time.sleep(seconds)
        estate.cluster.start_apiserver()

        def goes_on() -> bool:
            estate.cluster.revive_controllers()
            return self._are_settled(target)

        eventually(goes_on, what=f"all at {target}m", timeout=self._patience)
        assert all(operator.alive for operator in estate.operators)

    # What is seen of them

    def _recommend_other_size(self) -> int:
        """Recommend the size that they do not have, and return it."""
        target = MORE if self._estate.sizes("canaried")[0] == LESS else LESS
        self._estate.recommend_size(cpu=target)
        return target

    def _settle(self, cpu: int) -> None:
        eventually(lambda: self._are_settled(cpu), what=f"all at {cpu}m", timeout=self._patience)

    def _are_settled(self, cpu: int) -> bool:
        """Return whether both workloads have exactly this size everywhere."""
        return all(self._is_settled(which, cpu) for which in (IN_PLACE, ROLLED))

    def _is_settled(self, which: tuple[str, str], cpu: int) -> bool:
        estate, (kind, name) = self._estate, which
        policy = "in-place" if which == IN_PLACE else "by-rollout"
        replicas = estate.get(kind, name)["spec"]["replicas"]
        return (
            not estate.mark(kind, name, "change")
            and estate.sizes(name) == [cpu] * replicas
            and estate.status(policy, name).get("status") == "Applied"
            and f"{cpu}m" in [each["cpu"] for each in estate.status(policy, name)["recommendations"]]
        )

    def _generations(self) -> dict[str, int]:
        return {
            pod["metadata"]["name"]: pod["metadata"]["generation"] for pod in self._estate.pods("canaried")
        }

    def _kill_a_leader(self, *, after: float) -> None:
        def kill_operator() -> bool:
            if leader := self._estate.leader:
                leader.kill()
                leader.start()
            return leader is not None

        eventually(lambda: self._estate.leader is not None, what="a leader")
        time.sleep(after)  # any moment may be the one
        eventually(kill_operator, what="a leader to kill")

    async def _recommendations(self, name: str, what: str) -> int:
        async with Store.open(str(self._estate.folder / "trimtab.db")) as store:
            return len(await store.history.find(name=name, what=what, limit=1000))


def _moments(count: int, *, within: float) -> list[float]:
    """At random, and however few there are, early ones and late ones: one in each of as many parts of the time."""
    chance = random.Random(count)
    moments = [(part + chance.random()) * within / count for part in range(count)]
    chance.shuffle(moments)
    return moments
