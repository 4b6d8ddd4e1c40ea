"""The types that fields of the kinds share, each with its validation by the API server.

Numbers and booleans are strict: the server rejects a manifest with `"5"` where 5 is required, so these types reject
it too. Quantities and durations have types of their own.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import (
    AwareDatetime,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    Strict,
)
from pydantic_core import CoreSchema, core_schema

from trimtab.api.duration import Duration
from trimtab.api.errors import validation_problem

Bool = Annotated[bool, Strict()]
Int = Annotated[int, Strict(), Field(json_schema_extra={"format": "int64"})]
Count = Annotated[Int, Field(ge=0)]
Number = Annotated[float, Strict(), Field(json_schema_extra={"format": "double"})]
Percent = Annotated[Int, Field(ge=0, le=100)]

MAX_CONTAINERS = 64
"""The maximum number of containers of one pod in a status."""


def _format_rfc3339(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_time(seconds: float) -> str:
    """Format seconds since 1970 as `metav1.Time`, rounded down to the second."""
    return _format_rfc3339(datetime.fromtimestamp(math.floor(seconds), UTC))


def parse_time(text: str | None) -> float | None:
    """Parse a time of a status; None if there is none or Python does not know it."""
    try:
        return None if text is None else datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


Time = Annotated[AwareDatetime, PlainSerializer(_format_rfc3339, when_used="always")]
"""A time, written to the second as `metav1.Time` is."""


@dataclass(frozen=True)
class TextPattern:
    """Text that matches a pattern; `description` explains the pattern in words for messages."""

    pattern: str
    description: str
    max_length: int

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), "pattern": self.pattern, "maxLength": self.max_length}

    def _check(self, given: str) -> str:
        if len(given) > self.max_length or not re.fullmatch(self.pattern, given):
            raise validation_problem(f'"{given}" must be {self.description}')
        return given


_DNS = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"

MAX_TEXT_LENGTH = 1024
Text = Annotated[str, Field(max_length=MAX_TEXT_LENGTH)]
Name = Annotated[str, TextPattern(rf"^{_DNS}(\.{_DNS})*$", "a lower-case name, such as web-1", 253)]
NamespaceName = Annotated[str, TextPattern(f"^{_DNS}$", "the name of a namespace, such as team-a", 63)]
PluginName = Annotated[
    str, TextPattern("^[a-z]([-a-z0-9]*[a-z0-9])?$", "a lower-case name, such as prometheus", 63)
]
KindName = Annotated[
    str,
    TextPattern(
        rf"^[A-Z][A-Za-z0-9]*(\.{_DNS})*$",
        "a kind, with its group if need be: Deployment, Rollout.argoproj.io",
        253,
    ),
]


@dataclass(frozen=True)
class DurationRange:
    """A duration from `minimum` to `maximum`."""

    minimum: str
    maximum: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        within = (
            f"duration(self) >= duration('{self.minimum}') && duration(self) <= duration('{self.maximum}')"
        )
        return {**handler(schema), "x-kubernetes-validations": [{"rule": within, "message": self._message()}]}

    def _message(self) -> str:
        return f"must be from {self.minimum} to {self.maximum}"

    def _check(self, given: Duration) -> Duration:
        if not Duration.parse(self.minimum) <= given <= Duration.parse(self.maximum):
            raise validation_problem(self._message())
        return given


@dataclass(frozen=True)
class UniqueItems:
    """A list without duplicates: of plain values, or of objects identified by `keys`.

    The API server merges such lists by these keys, so two field managers can share one.
    """

    keys: tuple[str, ...] = ()

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        if not self.keys:
            return {**handler(schema), "x-kubernetes-list-type": "set"}
        list_type = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(self.keys)}
        return {**handler(schema), **list_type}

    def _check(self, given: tuple[Any, ...]) -> tuple[Any, ...]:
        seen: set[tuple[Any, ...]] = set()
        for index, item in enumerate(given):
            identity = tuple(getattr(item, key) for key in self.keys) if self.keys else (item,)
            if identity in seen:
                named = "/".join(map(str, identity))
                raise validation_problem(f'duplicate of "{named}"; each may be given once', field=str(index))
            seen.add(identity)
        return given


def format_micro_time(moment: datetime) -> str:
    """Format a time as a Kubernetes `MicroTime`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
