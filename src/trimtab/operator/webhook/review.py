"""Decode and encode AdmissionReview v1. Pure.

Any pod of the cluster may reach the webhook, so only what is reviewed is decoded: objects in Python take 27 times as
much memory as their JSON.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from trimtab.kube.errors import decode_deep
from trimtab.kube.rest.client import Object
from trimtab.operator.policy.validation import GUARDRAIL_ANNOTATION

_MAX_WARNING_LENGTH = 256
"""The length at which the API server truncates a warning."""


_MAX_SPEC_BYTES = 256 << 10
"""The largest spec that is read: many times what the CRD allows."""
_MAX_ANNOTATION_BYTES = 512 << 10
"""The most JSON of annotations that is read: an API server admits 256 KiB of them."""


class AdmissionRequest(msgspec.Struct, frozen=True):
    """The admission request of the API server."""

    uid: str
    operation: str = ""
    object: dict[str, Any] | None = None
    """The reviewed parts of the object: what names it, the guardrail, and for a policy the spec."""
    old_object: dict[str, Any] | None = None
    """The same parts of the object before an update."""
    raw: bytes = b""
    """The whole object as JSON."""

    @property
    def changes_spec(self) -> bool:
        """True if the request changes what is validated. A policy once admitted is not denied for another change of it."""
        then, now = self.old_object or {}, self.object or {}
        return self.operation != "UPDATE" or _reviewed_fields(then) != _reviewed_fields(now)


class _RequestWire(msgspec.Struct, rename="camel", frozen=True):
    uid: str
    operation: str = ""
    object: msgspec.Raw = msgspec.Raw(b"null")
    old_object: msgspec.Raw = msgspec.Raw(b"null")


class _Review(msgspec.Struct, frozen=True):
    request: _RequestWire


class _MetadataWire(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    annotations: msgspec.Raw = msgspec.Raw(b"null")


class _ObjectWire(msgspec.Struct, rename="camel", frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: msgspec.Raw = msgspec.Raw(b"null")
    spec: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_REVIEWS = msgspec.json.Decoder(_Review)


@dataclass(frozen=True, slots=True)
class AdmissionResponse:
    """The response: admitted unless there are problems, and changed by the patch."""

    problems: Sequence[str] = ()
    warnings: Sequence[str] = ()
    patch: Sequence[Object] = ()

    @property
    def is_allowed(self) -> bool:
        return not self.problems


def decode_request(body: bytes, *, with_spec: bool = True) -> AdmissionRequest:
    """Decode a request, and the spec of its object if asked, without values that nest too deeply; raise msgspec's errors
    for an invalid body.
    """
    request = decode_deep(body, _REVIEWS.decode).request
    return AdmissionRequest(
        request.uid,
        request.operation,
        _decode_reviewed_parts(request.object, with_spec=with_spec),
        _decode_reviewed_parts(request.old_object, with_spec=with_spec),
        raw=bytes(request.object),
    )


def _decode_reviewed_parts(raw: msgspec.Raw, *, with_spec: bool) -> Object | None:
    stated = msgspec.json.decode(raw, type=_ObjectWire | None)
    if stated is None:
        return None
    metadata = _decode_metadata(stated.metadata)
    stated_kind = {"apiVersion": stated.api_version, "kind": stated.kind}
    found: Object = {name: text for name, text in stated_kind.items() if text}
    found["metadata"] = {"name": metadata.name, "namespace": metadata.namespace}
    if with_spec:
        annotations = _decode_bounded(
            metadata.annotations, dict[str, str] | None, _MAX_ANNOTATION_BYTES, "metadata.annotations"
        )
        if annotations and GUARDRAIL_ANNOTATION in annotations:
            found["metadata"]["annotations"] = {GUARDRAIL_ANNOTATION: annotations[GUARDRAIL_ANNOTATION]}
        if stated.spec is not msgspec.UNSET:
            found["spec"] = _decode_bounded(stated.spec, Any, _MAX_SPEC_BYTES, "spec")
    return found


def _decode_metadata(raw: msgspec.Raw) -> _MetadataWire:
    """Decode what names an object; metadata that no API server sends counts as empty."""
    try:
        return msgspec.json.decode(raw, type=_MetadataWire | None) or _MetadataWire()
    except msgspec.ValidationError:
        return _MetadataWire()


def _decode_bounded(raw: msgspec.Raw, kind: Any, most: int, field: str) -> Any:
    size = len(bytes(raw))
    if size > most:
        raise msgspec.ValidationError(f"{field} has {size} bytes of JSON; at most {most} are read")
    return decode_deep(bytes(raw), partial(msgspec.json.decode, type=kind))


def encode_response(request: AdmissionRequest, answer: AdmissionResponse) -> bytes:
    """Encode the response for the API server."""
    response: Object = {"uid": request.uid, "allowed": answer.is_allowed}
    if answer.warnings:
        response["warnings"] = [_truncate(warning) for warning in answer.warnings]
    if answer.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(answer.patch)).decode()
    if answer.problems:
        response["status"] = {
            "code": 422,
            "reason": "Invalid",
            "message": "; ".join(answer.problems),
            # With causes, kubectl prints one line per field, as it does for CRD validation.
            "details": _object_details(request)
            | {"causes": [_cause(problem) for problem in answer.problems]},
        }
    return msgspec.json.encode(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
    )


def read_metadata(stated: Object) -> Object:
    """Return the metadata of an object in a request; empty where it is none."""
    metadata = stated.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _object_details(request: AdmissionRequest) -> Object:
    stated = request.object or {}
    return {
        "name": str(read_metadata(stated).get("name", "")),
        "group": str(stated.get("apiVersion", "")).partition("/")[0],
        "kind": str(stated.get("kind", "")),
    }


def _cause(problem: str) -> Object:
    field, _, message = problem.partition(": ")
    return {"field": field, "message": message, "reason": "FieldValueInvalid"}


def _truncate(warning: str) -> str:
    return warning if len(warning) <= _MAX_WARNING_LENGTH else warning[: _MAX_WARNING_LENGTH - 1] + "…"


def _reviewed_fields(policy: Object) -> tuple[Any, Any]:
    """The parts of a policy that are validated."""
    annotations = read_metadata(policy).get("annotations")
    return policy.get("spec"), annotations.get(GUARDRAIL_ANNOTATION) if isinstance(
        annotations, dict
    ) else None
