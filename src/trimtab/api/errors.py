"""The errors in users' manifests and settings, each one line that names the field.

    TrimtabError
    ├── QuantityError       text that is not a Kubernetes quantity
    ├── DurationError       text that is not a Go duration
    └── InvalidObjectError  an object that its kind rejects, one line per field

`trimtab.kube.errors` has the errors of requests to a cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic_core import PydanticCustomError

from trimtab.errors import TrimtabError
from trimtab.printable import shorten

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails


MAX_PROBLEMS = 16
"""The problems of one object that are reported; a tenant could write a list of a million invalid items."""
MAX_PROBLEM_LENGTH = 300
MAX_QUOTE_LENGTH = 40


class QuantityError(TrimtabError, ValueError):
    """The text is not a Kubernetes quantity."""


class DurationError(TrimtabError, ValueError):
    """The text is not a Go duration."""


class InvalidObjectError(TrimtabError):
    """The object is invalid; `problems` has one line for each invalid field."""

    def __init__(self, problems: list[str], *, origin: str = "") -> None:
        self.problems = problems
        self.origin = origin
        super().__init__((f"{origin}: " if origin else "") + "; ".join(problems))


def quote(text: str) -> str:
    """Return the start of a user's text in quotes, as one line."""
    return f'"{shorten(text, MAX_QUOTE_LENGTH)}"'


def validation_problem(message: str, *, field: str = "") -> PydanticCustomError:
    """Build the error that a validator raises; `field` is a path below the validated value if a part of it is
    invalid.
    """
    return PydanticCustomError("problem", "{message}", {"message": message, "field": field})


def format_problems(error: ValidationError, *, prefix: str = "") -> list[str]:
    """Format pydantic's errors, each in one line as Kubernetes does: `spec.weight: must be at most 1000`."""
    found = error.errors(include_url=False)
    first = [one for one in found[: 2 * MAX_PROBLEMS] if not _is_consequence(one, found)][:MAX_PROBLEMS]
    more = len(found) - len(first) if len(found) > 2 * MAX_PROBLEMS else 0
    return [_format_problem(one, prefix) for one in first] + (
        [f"there are {more} more problems"] if more else []
    )


def _is_consequence(one: ErrorDetails, found: list[ErrorDetails]) -> bool:
    """Return True if an error follows from another: pydantic counts a list's invalid items as missing, and then finds
    it too short.
    """
    place = one["loc"]
    return one["type"] == "too_short" and any(
        other["loc"][: len(place)] == place for other in found if other is not one
    )


def _format_problem(found: ErrorDetails, prefix: str) -> str:
    context = found.get("ctx", {})
    path = prefix
    for step in (*map(str, found["loc"]), *_read_field_steps(context)):
        path += f"[{step}]" if step.isdigit() else f".{step}" if path else step
    text = _PHRASES.get(found["type"], "").format(**context) or _clean_message(found["msg"])
    return shorten(f"{path}: {text}" if path else text, MAX_PROBLEM_LENGTH)


def _read_field_steps(context: dict[str, object]) -> list[str]:
    """Return the field that a rule of a whole model names."""
    return [step for step in str(context.get("field", "")).split(".") if step]


def _clean_message(message: str) -> str:
    """Return pydantic's message without the class of the exception."""
    message = message.removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


# Replacements for messages of pydantic that name neither the allowed values nor the fix.
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
