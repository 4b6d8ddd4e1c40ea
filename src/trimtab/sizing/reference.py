"""The strategies as a page for people: what each does, and its settings with their defaults and meaning."""

from __future__ import annotations

import inspect
import sys

from trimtab.docstrings import descriptions
from trimtab.plugins import Settings
from trimtab.sizing.strategy import STRATEGIES

_HEAD = """# Strategies

What `spec.strategy.name` of a policy and `--strategy` of a command can be, and the settings of each, made of the code. A
setting is given as `spec.strategy.settings` or as `--setting name=value`. [Write your own](../how-to/write-a-strategy.md).
"""


def page() -> str:
    return "\n".join([_HEAD, *(_section(name) for name in sorted(STRATEGIES.names()))])


def _section(name: str) -> str:
    kind = STRATEGIES.type_of(name)
    said = inspect.getdoc(sys.modules[kind.__module__]) or inspect.getdoc(kind) or ""
    rows = ["| setting | default | what it is |", "|---|---|---|", *_rows(kind.settings_type)]
    table = "\n".join(rows) if kind.settings_type.model_fields else "It has no settings."
    return f"## {name}\n\n{said}\n\n{table}\n"


def _rows(settings: type[Settings]) -> list[str]:
    said = descriptions(settings)
    return [
        f"| `{name}` | `{field.get_default(call_default_factory=True)}` "
        f"| {' '.join(said.get(name, '').replace('|', chr(92) + '|').split())} |"
        for name, field in settings.model_fields.items()
    ]
