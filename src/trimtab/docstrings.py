"""Descriptions of model fields from the docstrings below them, for CRDs, help and reference pages.

Pydantic can read them itself (`use_attribute_docstrings`), but it does so when each class is created, from the source
of its whole module: a tenth of a second in every process, few of which ever show them. The module is outside all
packages, because both the kinds and the settings of plugins are described this way.
"""

import ast
import inspect
import sys
from functools import cache
from itertools import pairwise
from typing import Any

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic_core import CoreSchema


class DocumentedModel(BaseModel):
    """A model whose JSON schema describes each field by its docstring."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        written = handler.resolve_ref_schema(handler(schema))
        descriptions = read_field_descriptions(cls)
        for name, field in cls.model_fields.items():
            if name in descriptions:
                written["properties"][field.alias or name]["description"] = descriptions[name]
        return written


def read_field_descriptions(model: type) -> dict[str, str]:
    """Return the description of each field of a model or dataclass by its name; a field that a subclass does not redefine keeps its
    description.
    """
    descriptions: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        if kind not in {object, BaseModel}:
            descriptions |= _read_class_descriptions(kind)
    return descriptions


def _read_class_descriptions(kind: type) -> dict[str, str]:
    written = _parse_classes(kind.__module__).get(kind.__qualname__)
    return {
        field.target.id: inspect.cleandoc(below.value.value)
        for field, below in pairwise(written.body if written else ())
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and not ast.unparse(field.annotation).startswith("ClassVar")  # not a setting that users can give
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }


@cache
def _parse_classes(module: str) -> dict[str, ast.ClassDef]:
    """Return the source of each top-level class of a module; empty if a plugin comes without its source."""
    try:
        source = inspect.getsource(sys.modules[module])
    except (OSError, TypeError):
        return {}
    return {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
