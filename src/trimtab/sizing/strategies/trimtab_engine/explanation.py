"""Explain a size of the default strategy in words: which forecast, which margin, which expected cost."""

from __future__ import annotations

from typing import NamedTuple

from trimtab.api.format import format_step
from trimtab.api.quantity import ResourceName
from trimtab.sizing.strategies.trimtab_engine.kernels import HIGHER, HOURLY, LAST, PEAK, SLOW

KEPT_TOLERANCE = 0.005
"""The relative difference from which a size counts as kept from an earlier hour."""


class Choice(NamedTuple):
    """How the size of one resource of one container was chosen, in cores or bytes."""

    forecaster: int
    level: float
    """The usage that the forecaster expects."""
    bid: float
    """The size of least expected cost above it."""
    held: float
    """The size in effect: that of an earlier hour until a change pays."""
    over: float
    """The share of time in which usage is expected above the bid."""
    request_cost: float
    """The expected cost of the request, in units of mean usage."""
    harm_cost: float
    """The expected cost of usage above the request, in units of mean usage."""
    savings: float
    """The savings of a change that were expected since the last one, as a fraction of usage in an update."""
    required_savings: float
    """The savings from which a change is made."""


def describe_choice(resource: ResourceName, choice: Choice, *, window_hours: float) -> str:
    """Describe a choice; `window_hours` is the stabilization window that the forecast covers, or 0."""

    def text(amount: float) -> str:
        return format_step(resource, round(amount * 1000 if resource == "cpu" else amount))

    name = _name_forecaster(resource, choice.forecaster, window_hours)
    cost = choice.request_cost + choice.harm_cost
    found = (
        f"{name}, {text(choice.level)}; {choice.bid / choice.level:.2f} times that keeps "
        f"{'time' if resource == 'cpu' else 'hours'} above it at {choice.over:.1%} and costs least, {cost:.2f} times "
        f"the mean usage ({choice.request_cost:.2f} request, {choice.harm_cost:.2f} harm)"
    )
    if abs(choice.held - choice.bid) <= KEPT_TOLERANCE * choice.held:
        return found
    return (
        f"{found}; {text(choice.held)} stays until a change to {text(choice.bid)} saves "
        f"{choice.required_savings:.2f} ({choice.savings:.2f} so far)"
    )


def _name_forecaster(resource: ResourceName, forecaster: int, window_hours: float) -> str:
    latest = "latest usage" if resource == "cpu" else "latest peak"
    hourly = "busiest hour of former days" if window_hours else "same hour on former days"
    return {
        LAST: f"mean of the last {window_hours:g} h" if window_hours else latest,
        SLOW: "slow mean" if resource == "cpu" else "slow mean of peaks",
        HOURLY: hourly,
        HIGHER: f"higher of {latest} and {hourly}",
        PEAK: "fading peak",
    }[forecaster]
