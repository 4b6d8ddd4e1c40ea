"""The reference of all settings and metrics as Markdown, made from the code, so that docs/how-to/install.md stays true."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from prometheus_client.metrics import MetricWrapperBase
from pydantic.fields import FieldInfo

from trimtab.api.optimizationpolicy import OptimizationPolicySpec
from trimtab.docstrings import descriptions
from trimtab.operator.config.loader import model_in
from trimtab.operator.config.model import OperatorConfig, restart_fields
from trimtab.operator.label_histogram import Distribution
from trimtab.operator.metrics import Metrics


def settings_table() -> str:
    """One row a setting: its path in the file, its default, what it is, and whether it waits for a restart."""
    rows = ["| setting | default | what it is |", "|---|---|---|"]
    waiting, said = set(restart_fields()), descriptions(OperatorConfig)
    for name, field in OperatorConfig.model_fields.items():
        mark = " ↻" if name in waiting else ""
        for path, default, what in _settings(field.alias or name, field, said.get(name, "")):
            rows.append(f"| `{path}`{mark} | {default} | {what} |")
    return "\n".join(rows)


def metrics_table() -> str:
    """One row a metric of the operator's own: its name, its kind, its labels, what it says."""
    rows = ["| metric | kind | labels | what it says |", "|---|---|---|---|"]
    rows += [
        _metric(value)
        for value in vars(Metrics()).values()
        if isinstance(value, MetricWrapperBase | Distribution)
    ]
    return "\n".join(rows)


def _settings(path: str, field: FieldInfo, about: str) -> Iterator[tuple[str, str, str]]:
    below = model_in(field.annotation)
    if below is None or below is OptimizationPolicySpec:
        yield path, _shown(field), " ".join(about.split())
        return
    path += "[]" if get_args(field.annotation) and get_args(field.annotation)[-1] is ... else ""
    said = descriptions(below)
    for name, inner in below.model_fields.items():
        yield from _settings(f"{path}.{inner.alias or name}", inner, said.get(name, ""))


def _shown(field: FieldInfo) -> str:
    """A default as the file would have it."""
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    if default is None or default in ((), {}):
        return ""
    if isinstance(default, tuple):
        return f"`[{', '.join(map(str, default))}]`"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default}`"


def _metric(collector: MetricWrapperBase | Distribution) -> str:
    (family,) = collector.describe()
    names = collector.labelnames if isinstance(collector, Distribution) else collector._labelnames  # noqa: SLF001 - told nowhere else
    labels = ", ".join(f"`{label}`" for label in names)
    name = family.name + ("_total" if family.type == "counter" else "")
    return f"| `{name}` | {family.type} | {labels} | {family.documentation} |"
