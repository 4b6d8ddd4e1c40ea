"""What makes a model a kind: its group, its names, its columns, and how a manifest becomes one.

A manifest that is not right ends in an `InvalidObjectError` with a line for every field that is wrong; that is
what the command line prints and what the webhook answers. Left out: fetching and storing (`trimtab.kube`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self

from pydantic import ValidationError

from trimtab.api.errors import InvalidObjectError, format_problems
from trimtab.api.meta import ObjectMeta
from trimtab.api.model import ApiModel

API_VERSION: Final = "trimtab.io/v1alpha1"
GROUP, _, VERSION = API_VERSION.partition("/")
INSTALL_COMMAND: Final = "trimtab crds | kubectl apply --server-side -f -"
"""What brings our kinds into a cluster."""


class PrinterColumn(NamedTuple):
    """One column of `kubectl get`; a higher priority shows it with `-o wide` only."""

    name: str
    path: str
    type: Literal["string", "integer", "number", "boolean", "date"] = "string"
    priority: int = 0


AGE_COLUMN = PrinterColumn("Age", ".metadata.creationTimestamp", "date")
READY_COLUMN = PrinterColumn("Ready", '.status.conditions[?(@.type=="Ready")].status')


@dataclass(frozen=True, kw_only=True)
class KindNames:
    """What a kind is called, and where it lives."""

    plural: str
    short: tuple[str, ...]
    namespaced: bool
    columns: tuple[PrinterColumn, ...]


class Kind(ApiModel):
    """A kind of ours. A subclass is named as its kind and adds `spec` and `status`."""

    names: ClassVar[KindNames]

    api_version: Literal["trimtab.io/v1alpha1"] = API_VERSION
    kind: str
    metadata: ObjectMeta = ObjectMeta()

    @classmethod
    def read(cls, manifest: Mapping[str, Any], *, origin: str = "") -> Self:
        """The object that a manifest states, with all defaults filled in; `origin` says where it came from."""
        try:
            return cls.model_validate(manifest)
        except ValidationError as error:
            raise InvalidObjectError(format_problems(error), origin=origin) from None

    def to_manifest(self) -> dict[str, Any]:
        """The object as plain data, ready to be sent or written as YAML."""
        return self.model_dump(mode="json")
