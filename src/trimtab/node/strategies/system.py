"""System watermarks: let the kernel reclaim memory early, so that no task has to wait for it."""

from __future__ import annotations

from typing import ClassVar

from trimtab.api.nodeqospolicy import SystemSpec as Settings
from trimtab.node.arbiter import KnobRef, KnobRequest
from trimtab.node.arbiter.host_knobs import MIN_FREE_KBYTES, WATERMARK_SCALE_FACTOR
from trimtab.node.strategies.strategy import NO_OUTPUT, StrategyInput, StrategyOutput

FACTOR_SCALE = 10_000


class System:
    """A stateless strategy."""

    name: ClassVar[str] = "system"
    settings_type: ClassVar[type[Settings]] = Settings

    def plan(self, inputs: StrategyInput) -> StrategyOutput:
        settings = inputs.policy.system
        if not settings.enable:
            return NO_OUTPUT
        wanted = {
            MIN_FREE_KBYTES: inputs.view.memory // 1024 * settings.min_free_kbytes_factor // FACTOR_SCALE,
            WATERMARK_SCALE_FACTOR: settings.watermark_scale_factor,
        }
        return StrategyOutput(
            tuple(
                KnobRequest(
                    ref=KnobRef("", knob), value=value, strategy=self.name, reason="as set in the policy"
                )
                for knob, value in wanted.items()
            )
        )
