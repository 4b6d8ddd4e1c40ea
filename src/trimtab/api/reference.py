"""The kinds as a page for people: every field with its type, default and meaning, out of the CRDs' own schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from trimtab.api import KINDS
from trimtab.api.crd import crd
from trimtab.api.kind import Kind

Schema = dict[str, Any]

_HEAD = """# Kinds

Every field of Trimtab's kinds, made of the CRDs that `trimtab crds` prints; `kubectl explain` says the same. The examples are
in `examples/`. Fields of lists are written with `[]`, those of maps with `{}`.
"""


def page() -> str:
    return "\n".join([_HEAD, *(_section(kind) for kind in KINDS)])


def _section(kind: type[Kind]) -> str:
    made = crd(kind)
    names = made["spec"]["names"]
    (version,) = made["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    rows = [row for part in ("spec", "status") for row in _rows(part, schema["properties"].get(part, {}))]
    table = "\n".join(["| field | type | default | what it is |", "|---|---|---|---|", *rows])
    short = ", ".join(f"`{name}`" for name in names.get("shortNames", ()))
    about = f"{schema.get('description', '')} {made['spec']['scope']}; short: {short}.".strip()
    return f"## {kind.__name__}\n\n{about}\n\n{table}\n"


def _rows(path: str, schema: Schema) -> Iterator[str]:
    """The fields below a path, each before those below it."""
    for name, field in schema.get("properties", {}).items():
        where = f"{path}.{name}"
        required = name in schema.get("required", ())
        default = "required" if required else _default(field)
        yield f"| `{where}` | {_type(field)} | {default} | {_told(field)} |"
        yield from _rows(where, field)
        yield from _rows(f"{where}[]", field.get("items", {}))
        if isinstance(values := field.get("additionalProperties"), dict):
            yield from _rows(f"{where}{{}}", values)


def _type(field: Schema) -> str:
    if "enum" in field:
        return " \\| ".join(f"`{value}`" for value in field["enum"])
    if field.get("x-kubernetes-int-or-string"):
        return "quantity"
    if field.get("type") == "array":
        return f"list of {_type(field.get('items', {}))}"
    bounds = [
        f"{sign} {field[name]:g}" for name, sign in (("minimum", "≥"), ("maximum", "≤")) if name in field
    ]
    return " ".join([field.get("type", "any"), *bounds])


def _default(field: Schema) -> str:
    default = field.get("default")
    plain = default is not None and not isinstance(
        default, dict
    )  # those of an object are told field by field
    return f"`{json.dumps(default) if not isinstance(default, str) else default}`" if plain else ""


def _told(field: Schema) -> str:
    return " ".join(field.get("description", "").replace("|", "\\|").split())
