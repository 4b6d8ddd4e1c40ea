"""Decode and encode AdmissionReview v1. Pure."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from trimtab.kube.errors import decode_deep
from trimtab.kube.rest.client import Object
from trimtab.operator.policy.validation import GUARDRAIL_ANNOTATION

_MAX_WARNING_LENGTH = 256
"""The length at which the API server truncates a warning."""


class AdmissionRequest(msgspec.Struct, rename="camel", frozen=True):
    """The admission request of the API server."""

    uid: str
    operation: str = ""
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None

    @property
    def changes_spec(self) -> bool:
        """True if the request changes what is validated. A policy once admitted is not denied for another change of it."""
        then, now = self.old_object or {}, self.object or {}
        return self.operation != "UPDATE" or _reviewed_fields(then) != _reviewed_fields(now)


class _Review(msgspec.Struct, frozen=True):
    request: AdmissionRequest


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


def decode_request(body: bytes) -> AdmissionRequest:
    """Decode a request, without values that nest too deeply; raise msgspec's errors for an invalid body."""
    return decode_deep(body, _REVIEWS.decode).request


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
