"""System watermarks: how early the kernel reclaims memory, so that nobody has to wait for it."""

from __future__ import annotations

from typing import ClassVar

from trimtab.api.nodeqospolicy import System as Settings
from trimtab.node.arbiter import Spot, Wish
from trimtab.node.arbiter.host_knobs import MIN_FREE_KBYTES, WATERMARK_SCALE_FACTOR
from trimtab.node.strategies.strategy import NOTHING, Plan, Scene

PARTS = 10_000


class System:
    """Remembers nothing."""

    name: ClassVar[str] = "system"
    settings_type: ClassVar[type[Settings]] = Settings

    def plan(self, scene: Scene) -> Plan:
        settings = scene.policy.system
        if not settings.enable:
            return NOTHING
        wanted = {
            MIN_FREE_KBYTES: scene.view.memory // 1024 * settings.min_free_kbytes_factor // PARTS,
            WATERMARK_SCALE_FACTOR: settings.watermark_scale_factor,
        }
        return Plan(
            tuple(
                Wish(spot=Spot("", knob), value=value, strategy=self.name, why="as the policy says")
                for knob, value in wanted.items()
            )
        )
