"""A person's word on a workload: hold it at its size, or at another, until it is released.

It is an annotation on the workload, so whoever may patch the workload has a say, by the dashboard or by hand, and it
lasts whoever leads:

    kubectl annotate deployment web trimtab.io/hold='until the sale is over'

What is not ours to read is taken as such a reason, and holds: a word that says stop is never misunderstood as go.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import msgspec

from trimtab.actuation.decide.context import Wish
from trimtab.api.duration import Duration
from trimtab.kube.kinds.pods import Resources

HOLD = "trimtab.io/hold"
MANAGER = "trimtab.io-hold"
"""The field manager that writes it."""
_BY_HAND = "an annotation"
_AT_ONCE = Duration.parse("0s")


class Hold(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who holds a workload, and why."""

    who: str
    why: str
    at: int = 0
    sizes: dict[str, Resources] = {}
    """What it is to have; whatever it has when empty."""

    def __str__(self) -> str:
        to = "held at a size of their choice by" if self.sizes else "held by"
        return f"{to} {self.who}" + (f": {self.why}" if self.why else "")

    @property
    def by_hand(self) -> bool:
        return self.who == _BY_HAND

    def written(self) -> str:
        """As the annotation has it."""
        return msgspec.json.encode(self).decode()

    def asked(self, wish: Wish) -> Wish:
        """What is wished for instead: these sizes, at any time of day, since a person has decided on now."""
        strategy = wish.strategy.model_copy(update={"min_interval": _AT_ONCE, "windows": ()})
        return replace(
            wish,
            sizes=self.sizes,
            strategy=strategy,
            urgent=False,
            unread="",
            on_hold="",
            stabilization=0,
            effective=None,
            alone=frozenset(),
        )


def read_hold(annotations: Iterable[tuple[str, str]]) -> Hold | None:
    """The hold among a workload's annotations; None where nobody holds it."""
    text = dict(annotations).get(HOLD)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=Hold)
    except msgspec.DecodeError:
        return Hold(who=_BY_HAND, why=text)
