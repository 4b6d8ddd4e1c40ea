"""Generate the CRDs from the models, so that the API server and our code validate the same objects.

Pydantic writes JSON Schema; the API server requires its structural subset. This module converts one into the other:
references are inlined, nulls and titles are dropped, and defaults are set at every level, so that the server fills in
`spec: {}` exactly as pydantic does.
"""

from typing import Any

import yaml
from pydantic.json_schema import GenerateJsonSchema

from trimtab.api.duration import Duration
from trimtab.api.kind import GROUP, VERSION, Kind, PrinterColumn
from trimtab.api.quantity import Quantity

Schema = dict[str, Any]

_CATEGORY = "trimtab"
_HEADER = "# Made by `trimtab crds` from the models in trimtab.api; change those and run `make crds`.\n"
_DROPPED_KEYS = ("title", "additionalProperties", "$defs", "anyOf", "default")
_LEADING_KEYS = ("description", "type", "format", "enum", "default")


def build_crd(kind: type[Kind]) -> dict[str, Any]:
    """Build the CustomResourceDefinition of a kind."""
    name, names = kind.__name__, kind.names
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": name,
                "listKind": f"{name}List",
                "plural": names.plural,
                "singular": name.lower(),
                "shortNames": list(names.short),
                "categories": [_CATEGORY],
            },
            "scope": "Namespaced" if names.namespaced else "Cluster",
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": _build_openapi_schema(kind)},
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [_to_printer_column(column) for column in names.columns],
                }
            ],
        },
    }


def render_crd(kind: type[Kind]) -> str:
    """Render the CRD as the YAML file of the repository."""
    return _HEADER + yaml.dump(
        build_crd(kind), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110
    )


class _Dumper(yaml.SafeDumper):
    """A dumper without YAML aliases, which would confuse readers and some tools."""

    def ignore_aliases(self, data: object) -> bool:
        del data
        return True


class _Generator(GenerateJsonSchema):
    """A schema generator that writes a default as a manifest would."""

    def encode_default(self, dft: Any) -> Any:
        if isinstance(dft, tuple):
            return [self.encode_default(item) for item in dft]
        return str(dft) if isinstance(dft, Quantity | Duration) else super().encode_default(dft)


def _build_openapi_schema(kind: type[Kind]) -> Schema:
    generated = kind.model_json_schema(mode="validation", by_alias=True, schema_generator=_Generator)
    schema = _to_structural(generated, generated.get("$defs", {}))
    # The server knows these itself, and lets a CRD say nothing more about them.
    for known in ("apiVersion", "kind"):
        schema["properties"][known] = {"type": "string"}
    schema["properties"]["metadata"] = {"type": "object"}
    return schema


def _to_structural(node: Schema, definitions: dict[str, Schema]) -> Schema:
    """Convert one node of JSON Schema to the structural schema of the API server."""
    node = _resolve(node, definitions)
    schema = {key: value for key, value in node.items() if key not in _DROPPED_KEYS}
    if "description" in node:
        schema["description"] = " ".join(node["description"].split())
    if "x-kubernetes-int-or-string" in node:
        schema["anyOf"] = node["anyOf"]
    if "items" in node:
        schema["items"] = _to_structural(node["items"], definitions)
    if "properties" in node:
        schema["properties"] = {
            name: _to_structural(value, definitions) for name, value in node["properties"].items()
        }
    elif node.get("additionalProperties") is True:
        schema["x-kubernetes-preserve-unknown-fields"] = True
    elif "additionalProperties" in node:
        schema["additionalProperties"] = _to_structural(node["additionalProperties"], definitions)
    if not float(node.get("minimum", 0)).is_integer():
        # The server truncates such a minimum to a whole number before it compares.
        least = {"rule": f"self >= {node['minimum']}", "message": f"must be at least {node['minimum']}"}
        schema["x-kubernetes-validations"] = [*node.get("x-kubernetes-validations", []), least]
    if node.get("default") not in (None, "", [], {}):
        # Write the whole default although its fields have defaults: the server validates a default before it fills
        # those in.
        schema["default"] = node["default"]
    return {key: schema[key] for key in (*_LEADING_KEYS, *schema) if key in schema}


def _resolve(node: Schema, definitions: dict[str, Schema]) -> Schema:
    """Inline references and drop the null of an optional; keys beside them take precedence."""
    if "$ref" in node:
        target = definitions[node["$ref"].removeprefix("#/$defs/")]
        return _resolve(
            {**target, **{key: value for key, value in node.items() if key != "$ref"}}, definitions
        )
    if "anyOf" in node and {"type": "null"} in node["anyOf"]:
        (only,) = [option for option in node["anyOf"] if option != {"type": "null"}]
        return _resolve(
            {**only, **{key: value for key, value in node.items() if key != "anyOf"}}, definitions
        )
    return node


def _to_printer_column(column: PrinterColumn) -> dict[str, Any]:
    shown = {"name": column.name, "type": column.type, "jsonPath": column.path}
    return {**shown, "priority": column.priority} if column.priority else shown
