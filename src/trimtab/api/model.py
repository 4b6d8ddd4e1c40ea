"""The base class of all parts of a kind: a frozen record that is parsed and serialized as Kubernetes does.

A constraint on one field is a pydantic constraint, and becomes the same constraint in the CRD. A constraint on
several fields is a `ValidationRule`: written once in Python and once in CEL, side by side, so that the command line,
the webhook and the API server reject the same objects and name the same field.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

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

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, given: Any) -> Any:
        """Drop nulls: the API server prunes a null before it sets defaults, so a null is the same as no field."""
        if isinstance(given, dict) and None in given.values():
            return {name: value for name, value in given.items() if value is not None}
        return given

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
            if value is None or (value in _EMPTY and field.default is not None and not field.is_required()):
                written.pop(spelling, None)
        return written

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        written = super().__get_pydantic_json_schema__(schema, handler)
        if cls.rules:
            written["x-kubernetes-validations"] = [rule.to_schema_validation() for rule in cls.rules]
        return written


class StatusModel(ApiModel):
    """A part of a status. Unknown fields are ignored, because a newer version may have written them."""

    model_config = ConfigDict(extra="ignore")
