"""A hold on a workload: a person keeps it at its size, or at another one, until the hold is released.

It is an annotation on the workload, so that everyone who may patch the workload can set it, in the dashboard
or by hand, and it outlives every change of leader:

    kubectl annotate deployment web trimtab.io/hold='until the sale is over'

Text that is not our JSON is taken as the reason of a hold: a request to stop is never misread as permission
to continue. Everyone who may annotate the workload can write any name and size into it: the author is unverified,
and whoever acts on the sizes has to bound them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import msgspec

from trimtab.actuation.decide.observation import DesiredChange
from trimtab.actuation.resources import ContainerName, Count
from trimtab.api.duration import Duration
from trimtab.kube.errors import DECODE_ERRORS
from trimtab.kube.kinds.pods import Resources
from trimtab.printable import escape_invisible

HOLD_ANNOTATION = "trimtab.io/hold"
HOLD_MANAGER = "trimtab.io-hold"
"""The field manager that writes the annotation."""
_MANUAL = "an annotation"
_MAX_AUTHOR, _MAX_REASON = 100, 500
"""The most characters that are shown: an annotation may have 256 KiB, and they go into statuses and the history."""
_NO_INTERVAL = Duration.parse("0s")


class Hold(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The person who holds a workload, and the reason."""

    who: str
    why: str
    at: Count = 0
    sizes: dict[ContainerName, Resources] = {}
    """The sizes that the workload is to have; empty to keep its current ones."""

    def __str__(self) -> str:
        to = "the workload is held at manually chosen sizes by" if self.sizes else "the workload is held by"
        return f"{to} {self.author}" + (f": {self.why}" if self.why else "")

    @property
    def author(self) -> str:
        """The author for people; the history has the verified one if the hold was set in the dashboard."""
        return self.who if self.is_manual else f"{self.who} (unverified)"

    @property
    def is_manual(self) -> bool:
        return self.who == _MANUAL

    def encode(self) -> str:
        """Return the hold as the text of its annotation."""
        return msgspec.json.encode(self).decode()

    def apply_to(self, desired: DesiredChange) -> DesiredChange:
        """Return the change that the hold asks for: these sizes, at any time of day, because a person has
        chosen the moment.
        """
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
    """Return the hold among a workload's annotations; None if there is none."""
    text = dict(annotations).get(HOLD_ANNOTATION)
    if text is None:
        return None
    try:
        hold = msgspec.json.decode(text, type=Hold)
    except DECODE_ERRORS:
        hold = Hold(who=_MANUAL, why=text)
    return msgspec.structs.replace(
        hold,
        who=escape_invisible(hold.who[:_MAX_AUTHOR]),
        why=escape_invisible(hold.why[:_MAX_REASON]),
    )
