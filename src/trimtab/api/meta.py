"""The Kubernetes types that our kinds use: metadata, conditions, label selectors.

Only the fields that are read or written are defined: of the metadata, the identity, the versions, labels and
annotations. Conditions of a status follow the rules of `metav1.Condition`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from trimtab.api.fields import Count, TextPattern, Time, format_time
from trimtab.api.model import ApiModel, StatusModel, ValidationRule

Labels = Mapping[str, str]

_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_PREFIX = r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
LABEL_KEY = rf"^{_PREFIX}{_NAME}$"

LabelKey = Annotated[str, TextPattern(LABEL_KEY, "the key of a label, such as app or example.com/tier", 317)]
LabelValue = Annotated[
    str, TextPattern(rf"^({_NAME})?$", "the value of a label: at most 63 letters, digits, -, _ or .", 63)
]


class ObjectMeta(StatusModel):
    """The identity of an object; fields that are not defined here are ignored."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None


class ConditionStatus(StrEnum):
    """The status of a condition; `Unknown` is not `False`."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(StatusModel):
    """One aspect of an object's state, as in `metav1.Condition`."""

    type: Annotated[str, TextPattern(r"^[A-Za-z][-A-Za-z0-9_./]*$", "one word, such as Ready", 316)]
    """The type of the condition, such as Ready."""

    status: ConditionStatus
    """True, False or Unknown."""

    reason: Annotated[
        str, TextPattern(r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$", "one word, such as PolicyValid", 1024)
    ]
    """The reason as one word for programs."""

    message: Annotated[str, Field(max_length=32768)] = ""
    """The reason as a sentence for people."""

    last_transition_time: Time
    """The time when the status last changed from one value to another."""

    observed_generation: Count | None = None
    """The generation of the spec that the condition was determined for."""


class LabelSelectorOperator(StrEnum):
    """The operator that compares a label with the values of a requirement."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


_VALUE_OPERATORS = (LabelSelectorOperator.IN, LabelSelectorOperator.NOT_IN)


class LabelSelectorRequirement(ApiModel):
    """One requirement on the labels of an object."""

    rules = (
        ValidationRule(
            field="values",
            message="is required when operator is In or NotIn",
            predicate=lambda self: self.operator not in _VALUE_OPERATORS or bool(self.values),
            cel="!(self.operator in ['In', 'NotIn']) || (has(self.values) && size(self.values) > 0)",
        ),
        ValidationRule(
            field="values",
            message="must be left out when operator is Exists or DoesNotExist",
            predicate=lambda self: self.operator in _VALUE_OPERATORS or not self.values,
            cel="self.operator in ['In', 'NotIn'] || !has(self.values) || size(self.values) == 0",
        ),
    )

    key: LabelKey
    """The key of the label."""

    operator: LabelSelectorOperator
    """In, NotIn, Exists or DoesNotExist."""

    values: Annotated[tuple[LabelValue, ...], Field(max_length=64)] = ()
    """The values to compare with, for In and NotIn only."""

    def matches(self, labels: Labels) -> bool:
        """Return True if the labels meet the requirement; NotIn matches an object without the label, as in every
        Kubernetes selector.
        """
        match self.operator:
            case LabelSelectorOperator.IN:
                return self.key in labels and labels[self.key] in self.values
            case LabelSelectorOperator.NOT_IN:
                return labels.get(self.key) not in self.values
            case LabelSelectorOperator.EXISTS:
                return self.key in labels
            case LabelSelectorOperator.DOES_NOT_EXIST:
                return self.key not in labels


class LabelSelector(ApiModel):
    """Selects objects by their labels; all requirements must be met, and an empty selector selects everything."""

    rules = (
        ValidationRule(
            field="matchLabels",
            message="every key must be the key of a label, such as app or example.com/tier",
            predicate=lambda self: all(re.fullmatch(LABEL_KEY, key) for key in self.match_labels),
            cel=f"!has(self.matchLabels) || self.matchLabels.all(key, key.matches(r'{LABEL_KEY}'))",
        ),
    )

    match_labels: Annotated[dict[str, LabelValue], Field(max_length=64)] = Field(default_factory=dict)
    """The labels that an object must have, with these values."""

    match_expressions: Annotated[tuple[LabelSelectorRequirement, ...], Field(max_length=32)] = ()
    """Further requirements on labels."""

    def matches(self, labels: Labels) -> bool:
        return all(labels.get(key) == value for key, value in self.match_labels.items()) and all(
            requirement.matches(labels) for requirement in self.match_expressions
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**super().__get_pydantic_json_schema__(schema, handler), "x-kubernetes-map-type": "atomic"}


Document = dict[str, Any]

MAX_MESSAGE_LENGTH = 4096


def build_condition(type_: str, *, holds: bool | None, reason: str = "", message: str = "") -> Document:
    """Build a condition without its time; its status is Unknown if `holds` is None. Empty texts are omitted."""
    condition = {"type": type_, "status": "Unknown" if holds is None else str(holds)}
    texts = {"reason": reason, "message": message[:MAX_MESSAGE_LENGTH]}
    return condition | {name: text for name, text in texts.items() if text}


def set_conditions(
    wanted: Iterable[Document],
    before: Iterable[Mapping[str, Any]],
    *,
    now: float,
    generation: int | None = None,
) -> list[Document]:
    """Return the wanted conditions with the times of their last transitions, and the generation that they are about.

    A condition keeps its time while its status stays, even if the reason changes.
    """
    known = {condition["type"]: condition for condition in before}
    observed = {} if generation is None else {"observedGeneration": generation}
    return [
        {**condition, "lastTransitionTime": _transition_time(condition, known, now), **observed}
        for condition in wanted
    ]


def _transition_time(condition: Document, known: Mapping[str, Mapping[str, Any]], now: float) -> str:
    old = known.get(condition["type"], {})
    is_same = old.get("status") == condition["status"]
    return str(old["lastTransitionTime"]) if is_same and "lastTransitionTime" in old else format_time(now)
