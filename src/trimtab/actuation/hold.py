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

from trimtab.actuation.decide.context import DesiredChange
from trimtab.api.duration import Duration
from trimtab.kube.kinds.pods import Resources

HOLD_ANNOTATION = "trimtab.io/hold"
HOLD_MANAGER = "trimtab.io-hold"
"""The field manager that writes it."""
_MANUAL = "an annotation"
_NO_INTERVAL = Duration.parse("0s")


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
    def is_manual(self) -> bool:
        return self.who == _MANUAL

    def encode(self) -> str:
        """As the annotation has it."""
        return msgspec.json.encode(self).decode()

    def apply_to(self, desired: DesiredChange) -> DesiredChange:
        """What is wished for instead: these sizes, at any time of day, since a person has decided on now."""
        strategy = desired.strategy.model_copy(update={"min_interval": _NO_INTERVAL, "windows": ()})
        return replace(
            desired,
            sizes=self.sizes,
            strategy=strategy,
            is_urgent=False,
            usage_error="",
            hold_reason="",
            stabilization=0,
            computed_from=None,
            excluded_containers=frozenset(),
        )


def read_hold(annotations: Iterable[tuple[str, str]]) -> Hold | None:
    """The hold among a workload's annotations; None where nobody holds it."""
    text = dict(annotations).get(HOLD_ANNOTATION)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=Hold)
    except msgspec.DecodeError:
        return Hold(who=_MANUAL, why=text)
