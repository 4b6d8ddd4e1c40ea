"""Options by name: the cache class (RDT) of the pods, and the power profile of the cores that they run on.

Both come to pods by a rollout, and mean something where nodes have them. What each brings is learned; beforehand it is
thought to be little.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from msgspec.structs import replace

from trimtab.intents.action import Deed
from trimtab.intents.constraints import Limits
from trimtab.intents.effects.model import Effects
from trimtab.intents.objective import Goal
from trimtab.intents.state import State
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


class _Option(ABC):
    """What both have in common: which options are dearer or cheaper than the one of now, and what each should bring."""

    name: ClassVar[str]
    group: ClassVar[str]
    diminishing = True

    def __init__(self, disruption: float, options: Sequence[str]) -> None:
        self.disruption, self._options = disruption, options

    def candidates(
        self,
        state: State,
        *,
        goal: Goal,
        effects: Effects,
        limits: Limits,  # noqa: ARG002 - nodes say what options there are
    ) -> Sequence[Deed]:
        now = self.of(state)
        options = _others(self._options, now, down=goal.gives_back)
        changed = [self.set(state, option) for option in options]
        return [
            Deed(
                actuator=self.name,
                parameters={"option": option or NONE, "from": now or NONE},
                after=after,
                disruption=self.disruption,
            )
            for option, after in zip(options, effects.after(state, changed, group=self.group), strict=True)
        ]

    @abstractmethod
    def of(self, state: State) -> str | None: ...

    @abstractmethod
    def set(self, state: State, option: str | None) -> State: ...


class CacheClass(_Option):
    settings_type: ClassVar[type[CacheClassSettings]] = CacheClassSettings
    name = "cacheClass"
    group = "rdt"

    def __init__(self, settings: CacheClassSettings | None = None) -> None:
        settings = settings or CacheClassSettings()
        super().__init__(settings.disruption, settings.options)

    def of(self, state: State) -> str | None:
        return state.cache_class

    def set(self, state: State, option: str | None) -> State:
        return replace(state, cache_class=option)


class PowerProfile(_Option):
    settings_type: ClassVar[type[PowerProfileSettings]] = PowerProfileSettings
    name = "powerProfile"
    group = "power"

    def __init__(self, settings: PowerProfileSettings | None = None) -> None:
        settings = settings or PowerProfileSettings()
        super().__init__(settings.disruption, settings.options)

    def of(self, state: State) -> str | None:
        return state.power_profile

    def set(self, state: State, option: str | None) -> State:
        return replace(state, power_profile=option)


def _others(options: Sequence[str], now: str | None, *, down: bool) -> list[str | None]:
    """Those dearer than now, or cheaper; of an option that is not known, none."""
    if (now or NONE) not in options:
        return []
    place = options.index(now or NONE)
    return [
        None if option == NONE else option for option in (options[:place] if down else options[place + 1 :])
    ]
