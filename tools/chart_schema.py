"""Write the schema of `operator.config` into the chart, so that helm rejects a misspelt setting before it is installed.

    python -m tools.chart_schema

The definitions whose names begin with a capital letter come from the models of the operator's settings; everything else in
charts/trimtab/values.schema.json is written by hand.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from trimtab.operator.config.model import OperatorConfig

SCHEMA_FILE: Final = Path("charts/trimtab/values.schema.json")
_ROOT: Final = OperatorConfig.__name__
_DROPPED: Final = frozenset({"title", "default", "format", "$defs", "deprecated"})
_ALIASES: Final[dict[str, Any]] = {
    "metricsProvider": {"type": ["string", "null"]},
    "prometheusURL": {"type": ["string", "null"]},
    "leaderElection": {"anyOf": [{"type": "boolean"}, {"$ref": "#/definitions/LeaderElectionSettings"}]},
}
"""The settings of an OptiPod ConfigMap, which the operator reads as well."""


def render_schema(written: str) -> str:
    """Return the text of the chart's schema with the definitions of today's settings."""
    schema = json.loads(written)
    by_hand = {name: each for name, each in schema["definitions"].items() if not name[0].isupper()}
    schema["definitions"] = {**by_hand, **_build_definitions()}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _build_definitions() -> dict[str, Any]:
    generated = OperatorConfig.model_json_schema(by_alias=True, ref_template="#/definitions/{model}")
    definitions = {name: _convert(each) for name, each in generated["$defs"].items()}
    root = _convert(generated)
    root["properties"].update(_ALIASES)
    return dict(sorted({**definitions, _ROOT: root}.items()))


def _convert(node: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without what helm does not check; like the operator, it takes a null for no value."""
    options = [each for each in node.get("anyOf", ()) if each != {"type": "null"}]
    if len(options) == 1:
        node = {**{key: value for key, value in node.items() if key != "anyOf"}, **options[0]}
    found = {key: value for key, value in node.items() if key not in _DROPPED and not key.startswith("x-")}
    if "description" in found:
        found["description"] = " ".join(found["description"].split())
    for key in ("properties", "patternProperties"):
        if key in found:
            found[key] = {name: _convert(each) for name, each in found[key].items()}
    for key in ("items", "additionalProperties", "propertyNames"):
        if isinstance(found.get(key), dict):
            found[key] = _convert(found[key])
    if "anyOf" in found:
        found["anyOf"] = [_convert(each) for each in found["anyOf"]]
    if isinstance(found.get("type"), str) and found["type"] != "null":
        found["type"] = [found["type"], "null"]
    if "enum" in found:
        found["enum"] = [*found["enum"], None]
    return found


if __name__ == "__main__":
    SCHEMA_FILE.write_text(render_schema(SCHEMA_FILE.read_text()))
