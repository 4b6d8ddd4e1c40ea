"""Block I/O: limit the use of disks by tier.

Limits of best-effort pods apply to the cgroup of their QoS class and to each such pod elsewhere; those of
other tiers to each pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from trimtab.api.nodeqospolicy import BlkIOSpec as Settings
from trimtab.api.nodeqospolicy import BlockDeviceSpec
from trimtab.node.arbiter import BoundType, KnobRef, KnobRequest
from trimtab.node.cgroups import DeviceValues, Knob
from trimtab.node.cgroups.knobs import IO_READ_BPS, IO_READ_IOPS, IO_WEIGHT, IO_WRITE_BPS, IO_WRITE_IOPS
from trimtab.node.model import NodeView, Tier
from trimtab.node.strategies.strategy import NO_OUTPUT, StrategyInput, StrategyOutput


class BlkIo:
    """A stateless strategy."""

    name: ClassVar[str] = "blkio"
    settings_type: ClassVar[type[Settings]] = Settings

    def plan(self, inputs: StrategyInput) -> StrategyOutput:
        settings = inputs.policy.blkio
        if not settings.enable:
            return NO_OUTPUT
        tiers = {Tier.LSR: settings.lsr, Tier.LS: settings.ls, Tier.BE: settings.be}
        # Once per block and not per cgroup: there may be hundreds of either.
        devices = {block: inputs.find_devices(block) for blocks in tiers.values() for block in blocks}
        requests = (
            KnobRequest(
                ref=KnobRef(path, knob),
                value=value,
                bound=bound,
                strategy=self.name,
                reason="as set in the policy",
            )
            for tier, blocks in tiers.items()
            for knob, value, bound in _build_limits(blocks, devices)
            for path in _list_cgroups(inputs.view, tier)
        )
        missing = {
            f"the node has no {block.type.value} {block.name}"
            for block, found in devices.items()
            if not found
        }
        return StrategyOutput(tuple(requests), unsupported=tuple(sorted(missing)))


def _build_limits(
    blocks: Iterable[BlockDeviceSpec], found: Mapping[BlockDeviceSpec, Iterable[str]]
) -> list[tuple[Knob[DeviceValues], DeviceValues, BoundType]]:
    """Return the limits of each cgroup of a tier."""
    amounts: dict[Knob[DeviceValues], dict[str, int]] = {}
    weight = 100
    for block in blocks:
        devices = found[block]
        for knob, amount in (
            (IO_READ_BPS, block.read_bps),
            (IO_WRITE_BPS, block.write_bps),
            (IO_READ_IOPS, block.read_iops),
            (IO_WRITE_IOPS, block.write_iops),
        ):
            if amount:
                amounts.setdefault(knob, {}).update(dict.fromkeys(devices, amount))
        weight = min(weight, block.io_weight_percent)
    wanted: list[tuple[Knob[DeviceValues], DeviceValues, BoundType]] = [
        (knob, value, BoundType.AT_MOST) for knob, value in amounts.items() if value
    ]
    return [*wanted, (IO_WEIGHT, {"default": weight}, BoundType.EXACTLY)] if weight < 100 else wanted


def _list_cgroups(view: NodeView, tier: Tier) -> list[str]:
    pods = [pod.cgroup for pod in view.pods_in_tier(tier)]
    if tier is not Tier.BE:
        return pods
    together = view.best_effort_cgroup
    return [together, *(path for path in pods if not path.startswith(f"{together}/"))]
