"""Block I/O: how much of each disk a tier may use.

Throttles and weights of best-effort pods are those of the class that Kubernetes keeps them in, and of each such pod
that lies elsewhere; those of the other tiers are of each pod.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from trimtab.api.nodeqospolicy import BlkIO as Settings
from trimtab.api.nodeqospolicy import BlockIO
from trimtab.node.arbiter import Bound, Spot, Wish
from trimtab.node.cgroups import Amounts, Knob
from trimtab.node.cgroups.knobs import IO_READ_BPS, IO_READ_IOPS, IO_WEIGHT, IO_WRITE_BPS, IO_WRITE_IOPS
from trimtab.node.picture import NodeView, Tier
from trimtab.node.strategies.strategy import NOTHING, Plan, Scene


class BlkIo:
    """Remembers nothing."""

    name: ClassVar[str] = "blkio"
    settings_type: ClassVar[type[Settings]] = Settings

    def plan(self, scene: Scene) -> Plan:
        settings = scene.policy.blkio
        if not settings.enable:
            return NOTHING
        tiers = {Tier.LSR: settings.lsr, Tier.LS: settings.ls, Tier.BE: settings.be}
        return Plan(
            tuple(
                wish
                for tier, blocks in tiers.items()
                for path in _cgroups(scene.view, tier)
                for wish in self._of_cgroup(path, blocks, scene)
            )
        )

    def _of_cgroup(self, path: str, blocks: Iterable[BlockIO], scene: Scene) -> list[Wish]:
        amounts: dict[Knob[Amounts], dict[str, int]] = {}
        weight = 100
        for block in blocks:
            for knob, amount in (
                (IO_READ_BPS, block.read_bps),
                (IO_WRITE_BPS, block.write_bps),
                (IO_READ_IOPS, block.read_iops),
                (IO_WRITE_IOPS, block.write_iops),
            ):
                if amount:
                    amounts.setdefault(knob, {}).update(dict.fromkeys(scene.devices(block), amount))
            weight = min(weight, block.io_weight_percent)
        wishes = [self._wish(path, knob, value, Bound.AT_MOST) for knob, value in amounts.items() if value]
        if weight < 100:
            wishes.append(self._wish(path, IO_WEIGHT, {"default": weight}, Bound.EXACTLY))
        return wishes

    def _wish(self, path: str, knob: Knob[Amounts], value: Amounts, bound: Bound) -> Wish:
        return Wish(
            spot=Spot(path, knob), value=value, bound=bound, strategy=self.name, why="as the policy says"
        )


def _cgroups(view: NodeView, tier: Tier) -> list[str]:
    pods = [pod.cgroup for pod in view.of_tier(tier)]
    if tier is not Tier.BE:
        return pods
    together = view.best_effort_cgroup
    return [together, *(path for path in pods if not path.startswith(f"{together}/"))]
