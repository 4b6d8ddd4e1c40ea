"""The base class of our kinds: group, names, printer columns, and parsing of manifests.

An invalid manifest raises `InvalidObjectError` with one line per invalid field; the command line prints it and the
webhook returns it. `trimtab.kube` reads and writes objects.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self

from pydantic import ValidationError

from trimtab.api.errors import InvalidObjectError, format_problems
from trimtab.api.meta import ObjectMeta
from trimtab.api.model import ApiModel, upgrade_fields

API_VERSION: Final = "trimtab.io/v1alpha1"
GROUP, _, VERSION = API_VERSION.partition("/")
INSTALL_COMMAND: Final = "trimtab crds | kubectl apply --server-side -f -"
"""The command that installs our CRDs."""


class PrinterColumn(NamedTuple):
    """One column of `kubectl get`; a column with a priority above 0 is shown with `-o wide` only."""

    name: str
    path: str
    type: Literal["string", "integer", "number", "boolean", "date"] = "string"
    priority: int = 0


AGE_COLUMN = PrinterColumn("Age", ".metadata.creationTimestamp", "date")
READY_COLUMN = PrinterColumn("Ready", '.status.conditions[?(@.type=="Ready")].status')


@dataclass(frozen=True, kw_only=True)
class KindNames:
    """The names, the scope and the printer columns of a kind."""

    plural: str
    short: tuple[str, ...]
    namespaced: bool
    columns: tuple[PrinterColumn, ...]


class Kind(ApiModel):
    """A kind of ours. A subclass has the name of its kind and adds `spec` and `status`."""

    names: ClassVar[KindNames]

    api_version: Literal["trimtab.io/v1alpha1"] = API_VERSION
    kind: str
    metadata: ObjectMeta = ObjectMeta()

    @classmethod
    def read(cls, manifest: Mapping[str, Any], *, origin: str = "") -> Self:
        """Parse a manifest and fill in all defaults; `origin` names its source in messages."""
        try:
            return cls.model_validate(manifest)
        except ValidationError as error:
            raise InvalidObjectError(format_problems(error), origin=origin) from None
        except RecursionError:
            raise InvalidObjectError(["a value nests too deeply; use fewer levels"], origin=origin) from None

    @classmethod
    def list_deprecated_fields(cls, manifest: Mapping[str, Any]) -> tuple[str, ...]:
        """Return a line for each field of a manifest that has its name of the version before, with its present name."""
        return tuple(map(str, upgrade_fields(cls, dict(manifest))[1]))

    def to_manifest(self) -> dict[str, Any]:
        """Return the object as plain data, ready to be sent or written as YAML."""
        return self.model_dump(mode="json")
