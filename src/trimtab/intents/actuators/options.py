"""Options with names: the cache class (RDT) of pods, and the power profile of their cores.

A rollout brings both to pods, and they have an effect only on nodes that support them. Their effects are learned;
the prior effect is small.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from msgspec.structs import replace

from trimtab.intents.actuator import IntentAction
from trimtab.intents.constraints import PlanConstraints
from trimtab.intents.effects.model import EffectModels
from trimtab.intents.objective import Goal
from trimtab.intents.state import TargetState
from trimtab.plugins import Settings

NONE = "None"
"""The value in an action's parameters that means no option."""


class CacheClassSettings(Settings):
    disruption: float = 0.05
    """The cost of the action itself, in core-hours, because pods are replaced."""
    options: tuple[str, ...] = ("None", "besteffort", "burstable", "guaranteed")
    """The classes, from the cheapest to the most expensive, as the node agent knows them."""


class PowerProfileSettings(Settings):
    disruption: float = 0.05
    """The cost of the action itself, in core-hours, because pods are replaced."""
    options: tuple[str, ...] = ("balance-power", "None", "balance-performance", "performance")
    """The profiles, from the cheapest to the most expensive: extended resources of power.intel.com, or
    VENDOR/NAME."""


class _OptionActuator(ABC):
    """The shared part of both actuators: it proposes the more expensive or the cheaper options."""

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
    """Return the options that are more expensive or cheaper than the current one; none if the current one is
    unknown.
    """
    if (now or NONE) not in options:
        return []
    index = options.index(now or NONE)
    return [
        None if option == NONE else option for option in (options[:index] if down else options[index + 1 :])
    ]
