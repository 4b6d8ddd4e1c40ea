"""The doc-strings below a model's fields, for CRDs, help and reference pages; nobody else pays for them.

Pydantic can read them itself (`use_attribute_docstrings`), but does so as each class is made, from the source of its whole
module: a tenth of a second in every process, of which hardly one ever shows them. It stands apart from all rooms, since
kinds and plugins' settings are both described so. Left out: the doc-strings of classes, which Python keeps.
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
    """A model whose fields' doc-strings are their descriptions in its JSON schema."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        written = handler.resolve_ref_schema(handler(schema))
        said = read_field_descriptions(cls)
        for name, field in cls.model_fields.items():
            if name in said:
                written["properties"][field.alias or name]["description"] = said[name]
        return written


def read_field_descriptions(model: type[BaseModel]) -> dict[str, str]:
    """What is said of each field, by its name; a field that is inherited as it is keeps what is said of it there."""
    said: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        if issubclass(kind, BaseModel) and kind is not BaseModel:
            said |= _read_class_descriptions(kind)
    return said


def _read_class_descriptions(kind: type[BaseModel]) -> dict[str, str]:
    written = _parse_classes(kind.__module__).get(kind.__qualname__)
    return {
        field.target.id: inspect.cleandoc(below.value.value)
        for field, below in pairwise(written.body if written else ())
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }


@cache
def _parse_classes(module: str) -> dict[str, ast.ClassDef]:
    """The source of each class at the top of a module; none where a plugin came without its source."""
    try:
        source = inspect.getsource(sys.modules[module])
    except (OSError, TypeError):
        return {}
    return {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
