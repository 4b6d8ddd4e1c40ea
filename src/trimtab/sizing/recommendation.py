"""The recommendation for one container and its explanation: the result of sizing.

A recommendation is complete: its resources are all that the container should have, including what does not
change. Where a policy limits the size of one change, the resources are the next step, and the target is where
the steps lead. Each guard that changed something leaves a `Factor`. Applying a recommendation is not part of
it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from trimtab.kube.kinds.pods import Resources

MAX_TEXT = 4096
"""The most characters of the status field."""

_MAX_LINE = 400


class Factor(msgspec.Struct, frozen=True, gc=False):
    """One step on the way to a recommended amount."""

    name: str
    """The resource and the guard, such as `memory peak`."""

    detail: str
    """The step and its reason, such as `256Mi -> 410Mi: …`."""

    source: str
    """The source of the guard's knowledge: `policy resourceBounds.cpu`, `HPA web`, `strategy vpa`."""

    def __str__(self) -> str:
        return f"{self.name}: {self.detail} [{self.source}]"


class Recommendation(msgspec.Struct, frozen=True, gc=False):
    """The full new resources of one container, and the steps that led there."""

    container: str
    resources: Resources
    explanation: tuple[Factor, ...]
    no_change_reason: str | None = None
    """The reason why nothing changes; the resources are then the current ones."""
    final_resources: Resources | None = None
    """The resources to which further changes lead, if the largest step of the policy delays them."""

    @property
    def target(self) -> Resources:
        """The resources that the container should end up with; `resources` are the next step."""
        return self.resources if self.final_resources is None else self.final_resources

    @property
    def text(self) -> str:
        """The explanation as lines, cut to the length of a status field; the beginning and the end are kept."""
        lines = [f"{each.name}: {each.detail} [{each.source}]" for each in self.explanation]
        lines = [line if len(line) <= _MAX_LINE else _truncate(line, _MAX_LINE) for line in lines]
        if self.no_change_reason is not None:
            lines.append(_truncate(f"held: {self.no_change_reason}", _MAX_LINE))
        return _fit_lines(lines)


def have_same_targets(some: Sequence[Recommendation], others: Sequence[Recommendation]) -> bool:
    """Return True if they recommend the same, apart from the explanations."""

    def amounts(found: Sequence[Recommendation]) -> list[object]:
        return [(each.container, each.resources, each.target, each.no_change_reason) for each in found]

    return amounts(some) == amounts(others)


def _truncate(line: str, most: int) -> str:
    return line if len(line) <= most else line[: most - 1] + "…"


def _fit_lines(lines: list[str]) -> str:
    """Return all lines if they fit; else drop from the middle, because the beginning and the end matter most."""
    text = "\n".join(lines)
    dropped = 0
    while len(text) > MAX_TEXT:
        del lines[len(lines) // 2]
        dropped += 1
        middle = len(lines) // 2
        text = "\n".join([*lines[:middle], f"… {dropped} more …", *lines[middle:]])
    return text
