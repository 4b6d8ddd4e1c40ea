"""A survey as Markdown: short enough for a comment on a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trimtab.scan.model import Survey
from trimtab.scan.render.summary import TOTALS_HEAD, change, dangers, gaps, title, totals, worth_showing
from trimtab.scan.render.units import cpu_text, memory_text, money_text

HEAD = ("Workload", "Container", "Pods", "CPU", "Memory", "Saves a month", "Severity", "Risk")

MOST_SKIPPED = 100
"""That are named: a comment on GitHub has room for 65,536 characters."""


def markdown(survey: Survey, *, top: int) -> str:
    """The headline and the first so many containers, 0 for all."""
    return "\n".join(_lines(survey, top)) + "\n"


def _lines(survey: Survey, top: int) -> Iterator[str]:
    yield f"## {_escaped(title(survey))}"
    yield ""
    yield f"Usage: {_escaped(survey.source)}"
    yield ""
    yield from _table(TOTALS_HEAD, totals(survey))
    yield ""
    yield f"**{dangers(survey)}**"
    for line in gaps(survey):
        yield f"\n⚠ {_escaped(line)}"
    found = worth_showing(survey)
    shown = found[:top] if top else found
    if shown:
        yield ""
        yield from _table(
            HEAD,
            [
                (
                    f"{one.key.namespace}/{one.key.kind}/{one.key.name}",
                    each.name,
                    str(one.replicas),
                    change(cpu_text(each.has.cpu_request), cpu_text(each.should.cpu_request)),
                    change(memory_text(each.has.memory_request), memory_text(each.should.memory_request)),
                    money_text(each.saving, survey.prices.currency),
                    str(each.severity),
                    " ".join(each.risks),
                )
                for one, each in shown
            ],
        )
    if len(shown) < len(found):
        yield f"\n… and {len(found) - len(shown)} more."
    if survey.skipped:
        yield f"\n<details><summary>Skipped: {len(survey.skipped)}</summary>\n"
        named = survey.skipped[:MOST_SKIPPED] if top else survey.skipped
        for skipped in named:
            key = skipped.key
            yield f"- {key.namespace}/{key.kind}/{key.name}: {_escaped(skipped.reason)}"
        if len(named) < len(survey.skipped):
            yield f"- … and {len(survey.skipped) - len(named)} more: --output json has all."
        yield "\n</details>"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'|'.join('---' if place == 0 else '---:' for place in range(len(head)))}|"
    for row in rows:
        yield f"| {' | '.join(map(_escaped, row))} |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
