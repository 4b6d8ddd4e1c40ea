"""What can be wrong with what a user writes, each told in one line that names the field.

    TrimtabError
    ├── QuantityError       text that is no Kubernetes quantity
    ├── DurationError       text that is no Go duration
    └── InvalidObjectError  an object that its kind refuses, one line a field

Left out: what goes wrong between us and a cluster (`trimtab.kube.errors`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic_core import PydanticCustomError

from trimtab.errors import TrimtabError

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails


class QuantityError(TrimtabError, ValueError):
    """Text that Kubernetes would not read as a quantity."""


class DurationError(TrimtabError, ValueError):
    """Text that Go would not read as a duration."""


class InvalidObjectError(TrimtabError):
    """An object that its kind refuses; `problems` holds one line for each field that is wrong."""

    def __init__(self, problems: list[str], *, origin: str = "") -> None:
        self.problems = problems
        self.origin = origin
        super().__init__((f"{origin}: " if origin else "") + "; ".join(problems))


def validation_problem(message: str, *, field: str = "") -> PydanticCustomError:
    """What a validator raises; `field` is a path below what is validated, where a part of it is to blame."""
    return PydanticCustomError("problem", "{message}", {"message": message, "field": field})


def format_problems(error: ValidationError, *, prefix: str = "") -> list[str]:
    """What pydantic found wrong, each in one line as Kubernetes writes it: `spec.weight: must be at most 1000`."""
    found = error.errors(include_url=False)
    return [_format_problem(one, prefix) for one in found if not _is_consequence(one, found)]


def _is_consequence(one: ErrorDetails, found: list[ErrorDetails]) -> bool:
    """Pydantic counts a list's bad items as missing, and then finds it too short."""
    place = one["loc"]
    return one["type"] == "too_short" and any(
        other["loc"][: len(place)] == place for other in found if other is not one
    )


def _format_problem(found: ErrorDetails, prefix: str) -> str:
    context = found.get("ctx", {})
    path = prefix
    for step in (*map(str, found["loc"]), *_read_field_steps(context)):
        path += f"[{step}]" if step.isdigit() else f".{step}" if path else step
    said = _PHRASES.get(found["type"], "").format(**context) or _clean_message(found["msg"])
    return f"{path}: {said}" if path else said


def _read_field_steps(context: dict[str, object]) -> list[str]:
    """A rule of a whole model says which of the model's fields it is about."""
    return [step for step in str(context.get("field", "")).split(".") if step]


def _clean_message(message: str) -> str:
    """Pydantic's words without the class of the exception that carried ours."""
    message = message.removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


# Pydantic's words where they name neither what is allowed nor what to do.
_PHRASES = {
    "missing": "is required",
    "extra_forbidden": "unknown field; check its spelling",
    "enum": "must be one of {expected}",
    "literal_error": "must be one of {expected}",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "too_short": "must have at least {min_length} items",
    "too_long": "must have at most {max_length} items",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "dict_type": "must be an object",
    "tuple_type": "must be a list",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
}
