"""The base class of all parts of a kind: a frozen record that is parsed and serialized as Kubernetes does.

A constraint on one field is a pydantic constraint, and becomes the same constraint in the CRD. A constraint on
several fields is a `ValidationRule`: written once in Python and once in CEL, side by side, so that the command line,
the webhook and the API server reject the same objects and name the same field.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, NamedTuple, Self, get_args

from pydantic import (
    ConfigDict,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema

from trimtab.api.errors import validation_problem
from trimtab.docstrings import DocumentedModel


@dataclass(frozen=True, kw_only=True)
class ValidationRule:
    """A constraint on several fields of a model."""

    field: str
    """The field that errors name, as a path below the model in the manifest's spelling; empty for the model
    itself."""

    message: str
    """The problem and its fix."""

    predicate: Callable[[Any], bool]
    cel: str

    detail: str = ""
    """The invalid values, such as `{min} > {max}`; Python only, because formatting numbers in CEL exceeds the cost
    limit."""

    def check(self, model: "ApiModel") -> None:
        if not self.predicate(model):
            values = f" ({self.detail.format(**dict(model))})" if self.detail else ""
            raise validation_problem(self.message + values, field=self.field)

    def to_schema_validation(self) -> dict[str, str]:
        """Return the rule as an entry of `x-kubernetes-validations`."""
        where = {"fieldPath": f".{self.field}"} if self.field else {}
        return {"rule": self.cel, "message": self.message, **where}


_EMPTY: tuple[Any, ...] = ("", (), [], {})
_SIZED = (str, tuple, list, dict)


class ApiModel(DocumentedModel):
    """A part of a kind. Unknown fields are rejected, so that a misspelt one is reported and not ignored."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
    )

    rules: ClassVar[tuple[ValidationRule, ...]] = ()

    renamed: ClassVar[Mapping[str, str]] = {}
    """The names that fields had in the version before, with their present names. They are read for one more version."""

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, given: Any) -> Any:
        """Drop nulls: the API server prunes a null before it sets defaults, so a null is the same as no field."""
        if not isinstance(given, dict):
            return given
        if None in given.values():
            given = {name: value for name, value in given.items() if value is not None}
        return cls.rename_fields(given)

    @classmethod
    def rename_fields(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of this model, but not of those below it, under their present names."""
        if cls.renamed.keys().isdisjoint(given):
            return given
        found = {name: value for name, value in given.items() if name not in cls.renamed}
        for old, new in cls.renamed.items():
            # The API server adds the default of the present name to an object that was stored under the old one, so a
            # default does not override the author's value.
            if old in given and (new not in found or cls._is_default(new, found[new])):
                found[new] = given[old]
        return found

    @classmethod
    def _is_default(cls, spelling: str, value: Any) -> bool:
        return any(
            field.alias == spelling and str(field.get_default(call_default_factory=False)) == str(value)
            for field in cls.model_fields.values()
        )

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        for rule in self.rules:
            rule.check(self)
        return self

    @model_serializer(mode="wrap")
    def _serialize_without_absent(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out nulls, and empty values if empty is the default."""
        written: dict[str, Any] = dump(self)
        for name, field in type(self).model_fields.items():
            spelling = field.alias or name
            value = written.get(spelling)
            if value is None or (value in _EMPTY and name not in self.fields_kept_empty()):
                written.pop(spelling, None)
        return written

    @classmethod
    @cache
    def fields_kept_empty(cls) -> frozenset[str]:
        """Return the fields in which an empty value differs from none: required ones, and those with another default."""
        return frozenset(
            name
            for name, field in cls.model_fields.items()
            if field.is_required()
            or field.default is None
            or (isinstance(field.default, _SIZED) and field.default)
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        written = super().__get_pydantic_json_schema__(schema, handler)
        if cls.rules:
            written["x-kubernetes-validations"] = [rule.to_schema_validation() for rule in cls.rules]
        for old, new in cls.renamed.items():
            # Without its old name in the schema, the API server would prune the value from stored objects.
            schema_of_field = {**written["properties"][new], "description": f"Deprecated: use {new}."}
            schema_of_field.pop("default", None)
            written["properties"][old] = schema_of_field
        return written


class StatusModel(ApiModel):
    """A part of a status. Unknown fields are ignored, because a newer version may have written them."""

    model_config = ConfigDict(extra="ignore")


class RenamedField(NamedTuple):
    """A field under its old name, and the path to use instead."""

    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.old} is deprecated and will be removed in the next version; use {self.new}"


def nested_model(annotation: Any) -> type[ApiModel] | None:
    """Return the model, or the type of the models, that a field holds; None if it holds none."""
    options = (annotation, *get_args(annotation))
    return next((kind for kind in options if isinstance(kind, type) and issubclass(kind, ApiModel)), None)


def upgrade_fields(
    model: type[ApiModel], given: dict[str, Any], path: str = ""
) -> tuple[dict[str, Any], list[RenamedField]]:
    """Return an object of the version before with the present names at all levels, and the fields that had others."""
    found = [
        RenamedField(f"{path}{old}", f"{path}{new}") for old, new in model.renamed.items() if old in given
    ]
    upgraded = dict(model.rename_fields(given))
    for field in model.model_fields.values():
        below = nested_model(field.annotation)
        if below is None or field.alias is None or field.alias not in upgraded:
            continue
        upgraded[field.alias], more = _upgrade_value(below, upgraded[field.alias], f"{path}{field.alias}")
        found += more
    return upgraded, found


def _upgrade_value(model: type[ApiModel], value: Any, path: str) -> tuple[Any, list[RenamedField]]:
    if isinstance(value, dict):
        return upgrade_fields(model, value, f"{path}.")
    if not isinstance(value, list):
        return value, []  # Validation reports a value of the wrong type.
    items = [
        upgrade_fields(model, item, f"{path}[{place}].") if isinstance(item, dict) else (item, [])
        for place, item in enumerate(value)
    ]
    return [item for item, _ in items], [field for _, fields in items for field in fields]
