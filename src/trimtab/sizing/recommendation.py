"""What one container should have, and why: the answer that everything after sizing reads.

A recommendation is complete: its resources are all that the container should have, also what does not change. Where a
policy limits how far one change may go, the resources are the next step, and the target is where the steps lead. Each
guard that had a say leaves a `Factor`; one that changed nothing leaves none. Left out: how it is put into effect.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from trimtab.kube.kinds.pods import Resources

ResourceName = Literal["cpu", "memory"]

MIB = 2**20

MAX_TEXT = 4096
"""Characters that the status field takes."""

_MAX_LINE = 400


class Factor(msgspec.Struct, frozen=True, gc=False):
    """One step on the way to a number."""

    name: str
    """The resource and the guard: `memory peak`."""

    detail: str
    """What it did and why: `256Mi -> 410Mi: …`."""

    source: str
    """Where its knowledge comes from: `policy resourceBounds.cpu`, `HPA web`, `strategy vpa`."""

    def __str__(self) -> str:
        return f"{self.name}: {self.detail} [{self.source}]"


class Recommendation(msgspec.Struct, frozen=True, gc=False):
    """The full new resources of one container, and the steps that led there."""

    container: str
    resources: Resources
    explanation: tuple[Factor, ...]
    no_change_reason: str | None = None
    """Why nothing is to be done although it was looked at; the resources are then those that it has."""
    final_resources: Resources | None = None
    """Where further changes lead, if the largest step of the policy keeps this one from getting there at once."""

    @property
    def target(self) -> Resources:
        """What the container should end up with; `resources` are the next step towards it."""
        return self.resources if self.final_resources is None else self.final_resources

    @property
    def text(self) -> str:
        """The explanation as lines, cut to what a status field takes: the beginning and the end are kept."""
        lines = [_truncate(str(factor), _MAX_LINE) for factor in self.explanation]
        if self.no_change_reason is not None:
            lines.append(_truncate(f"held: {self.no_change_reason}", _MAX_LINE))
        return _fit_lines(lines)


def format_amount(resource: ResourceName, amount: int | None) -> str:
    """An amount as people read it: `250m`, `512Mi`, `none`."""
    if amount is None:
        return "none"
    if resource == "cpu":
        return f"{amount}m"
    return f"{amount // MIB}Mi" if amount % MIB == 0 else f"{amount / MIB:.1f}Mi"


def _truncate(line: str, most: int) -> str:
    return line if len(line) <= most else line[: most - 1] + "…"


def _fit_lines(lines: list[str]) -> str:
    """All lines if they fit; otherwise the middle gives way, for how it began and how it ended matter most."""
    text = "\n".join(lines)
    dropped = 0
    while len(text) > MAX_TEXT:
        del lines[len(lines) // 2]
        dropped += 1
        middle = len(lines) // 2
        text = "\n".join([*lines[:middle], f"… {dropped} more …", *lines[middle:]])
    return text
