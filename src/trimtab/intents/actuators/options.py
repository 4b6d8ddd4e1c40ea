"""Options by name: the cache class (RDT) of the pods, and the power profile of the cores that they run on.

Both come to pods by a rollout, and mean something where nodes have them. What each brings is learned; beforehand it is
thought to be little.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from msgspec.structs import replace

from trimtab.intents.action import IntentAction
from trimtab.intents.constraints import PlanConstraints
from trimtab.intents.effects.model import EffectModels
from trimtab.intents.objective import Goal
from trimtab.intents.state import TargetState
from trimtab.plugins import Settings

NONE = "None"
"""How deeds say that no option is set."""


class CacheClassSettings(Settings):
    disruption: float = 0.05
    """What it costs by itself, in cores for an hour: pods are replaced for it."""
    options: tuple[str, ...] = ("None", "besteffort", "burstable", "guaranteed")
    """The classes, from the cheapest to the dearest; nodes' agents know these."""


class PowerProfileSettings(Settings):
    disruption: float = 0.05
    """What it costs by itself, in cores for an hour: pods are replaced for it."""
    options: tuple[str, ...] = ("balance-power", "None", "balance-performance", "performance")
    """The profiles, from the cheapest to the dearest: extended resources of power.intel.com, or VENDOR/NAME."""


class _OptionActuator(ABC):
    """What both have in common: which options are dearer or cheaper than the one of now, and what each should bring."""

    name: ClassVar[str]
    group: ClassVar[str]
    diminishing = True

    def __init__(self, disruption: float, options: Sequence[str]) -> None:
        self.disruption, self._options = disruption, options

    def candidates(
        self,
        state: TargetState,
        *,
        goal: Goal,
        effects: EffectModels,
        limits: PlanConstraints,  # noqa: ARG002 - nodes say what options there are
    ) -> Sequence[IntentAction]:
        now = self.get_option(state)
        options = _other_options(self._options, now, down=goal.is_release)
        changed = [self.with_option(state, option) for option in options]
        return [
            IntentAction(
                actuator=self.name,
                parameters={"option": option or NONE, "from": now or NONE},
                after=after,
                disruption=self.disruption,
            )
            for option, after in zip(options, effects.predict(state, changed, group=self.group), strict=True)
        ]

    @abstractmethod
    def get_option(self, state: TargetState) -> str | None: ...

    @abstractmethod
    def with_option(self, state: TargetState, option: str | None) -> TargetState: ...


class CacheClass(_OptionActuator):
    settings_type: ClassVar[type[CacheClassSettings]] = CacheClassSettings
    name = "cacheClass"
    group = "rdt"

    def __init__(self, settings: CacheClassSettings | None = None) -> None:
        settings = settings or CacheClassSettings()
        super().__init__(settings.disruption, settings.options)

    def get_option(self, state: TargetState) -> str | None:
        return state.cache_class

    def with_option(self, state: TargetState, option: str | None) -> TargetState:
        return replace(state, cache_class=option)


class PowerProfile(_OptionActuator):
    settings_type: ClassVar[type[PowerProfileSettings]] = PowerProfileSettings
    name = "powerProfile"
    group = "power"

    def __init__(self, settings: PowerProfileSettings | None = None) -> None:
        settings = settings or PowerProfileSettings()
        super().__init__(settings.disruption, settings.options)

    def get_option(self, state: TargetState) -> str | None:
        return state.power_profile

    def with_option(self, state: TargetState, option: str | None) -> TargetState:
        return replace(state, power_profile=option)


def _other_options(options: Sequence[str], now: str | None, *, down: bool) -> list[str | None]:
    """Those dearer than now, or cheaper; of an option that is not known, none."""
    if (now or NONE) not in options:
        return []
    place = options.index(now or NONE)
    return [
        None if option == NONE else option for option in (options[:place] if down else options[place + 1 :])
    ]
