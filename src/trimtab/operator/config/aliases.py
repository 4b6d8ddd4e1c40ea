"""Accept the settings of an OptiPod ConfigMap as aliases of the operator's own.

`metricsProvider`, `prometheusURL` and `leaderElection: true` become the settings that they stand for; `dryRun` and
`reconciliationInterval` have the same name here. A setting that the file also has under its own name is a problem, because
one of the two would have no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from trimtab.errors import TrimtabError

_PROVIDER: Final = "metricsProvider"
_URL: Final = "prometheusURL"
_ELECTION: Final = "leaderElection"
_PROMETHEUS: Final = "prometheus"


class AliasConflictError(TrimtabError):
    """Raised for a setting that a file has under two names."""


def expand_aliases(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a file without aliases."""
    expanded = {name: value for name, value in values.items() if name not in {_PROVIDER, _URL}}
    if isinstance(values.get(_ELECTION), bool):
        expanded[_ELECTION] = {"enabled": values[_ELECTION]}
    source = dict(expanded.get("metricsSource") or {})
    if _PROVIDER in values:
        expanded["metricsSource"] = source = _add(source, "metricsSource", "provider", values, _PROVIDER)
    if _URL not in values:
        return expanded
    if source.get("provider", _PROMETHEUS) == _PROMETHEUS:
        settings = _add(source.get("settings") or {}, "metricsSource.settings", "url", values, _URL)
        expanded["metricsSource"] = {**source, "settings": settings}
    else:  # policies may still name it as their provider
        others = expanded.get("additionalMetricsSources") or []
        added = {"provider": _PROMETHEUS, "settings": {"url": values[_URL]}}
        expanded["additionalMetricsSources"] = [*others, added]
    return expanded


def _add(
    settings: Mapping[str, Any], path: str, field: str, values: Mapping[str, Any], alias: str
) -> dict[str, Any]:
    if field in settings:
        raise AliasConflictError(f"{alias}: {path}.{field} is set too; keep one of the two")
    return {**settings, field: values[alias]}
