"""Errors of the API server by their status."""

import msgspec
import pytest

from trimtab.kube import errors
from trimtab.kube.errors import error_from_response


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (400, "BadRequest"),
        (401, "Unauthorized"),
        (403, "Forbidden"),
        (404, "NotFound"),
        (405, "MethodNotAllowed"),
        (406, "NotAcceptable"),
        (409, "Conflict"),
        (410, "Gone"),
        (413, "TooLarge"),
        (415, "UnsupportedMediaType"),
        (418, "ApiError"),
        (422, "Invalid"),
        (429, "TooManyRequests"),
        (500, "InternalError"),
        (502, "ServerError"),
        (503, "Unavailable"),
        (504, "ServerTimeout"),
    ],
)
def test_kube_error_has_a_class_for_each_code(code: int, name: str) -> None:
    assert type(error_from_response(code, b"", request="GET /x")) is getattr(errors, name)


def test_kube_error_keeps_the_message_of_the_server() -> None:
    body = msgspec.json.encode(
        {
            "kind": "Status",
            "message": 'Pod "web" is invalid',
            "reason": "Invalid",
            "code": 422,
            "details": {
                "causes": [{"field": "spec.containers[0].image", "message": "Required value", "reason": "x"}]
            },
        }
    )
    error = error_from_response(422, body, request="POST /api/v1/pods")
    assert str(error) == 'POST /api/v1/pods: Pod "web" is invalid'
    assert [(each.field, each.message) for each in error.causes] == [
        ("spec.containers[0].image", "Required value")
    ]


def test_kube_error_distinguishes_a_name_conflict_from_a_version_conflict() -> None:
    body = msgspec.json.encode({"message": "exists", "reason": "AlreadyExists", "code": 409})
    assert type(error_from_response(409, body, request="")) is errors.AlreadyExists


def test_kube_error_distinguishes_a_field_conflict_from_a_version_conflict() -> None:
    causes = [
        {"reason": "FieldManagerConflict", "message": 'conflict with "gitops"', "field": ".spec.replicas"}
    ]
    body = msgspec.json.encode({"message": "no", "reason": "Conflict", "details": {"causes": causes}})
    assert type(error_from_response(409, body, request="")) is errors.FieldManagerConflict


def test_kube_error_distinguishes_a_blocked_eviction_from_a_busy_server() -> None:
    causes = [{"reason": "DisruptionBudget", "message": "needs 3"}]
    body = msgspec.json.encode({"message": "no", "code": 429, "details": {"causes": causes}})
    error = error_from_response(429, body, request="")
    assert type(error) is errors.DisruptionBlocked
    assert not error.transient


def test_kube_error_quotes_a_foreign_response_in_one_line() -> None:
    error = error_from_response(502, b"<html>\n  Bad Gateway\n</html>", request="GET /x", retry_after="3")
    assert str(error) == "GET /x: <html> Bad Gateway </html>"
    assert error.retry_after == 3.0


def test_kube_error_quotes_a_response_in_another_encoding() -> None:
    body = '{"message": "Zugriff für niemanden"}'.encode("latin-1")
    assert str(error_from_response(403, body, request="")) == '{"message": "Zugriff f\ufffdr niemanden"}'
    with pytest.raises(
        errors.KubeResponseError, match="GET /x: the response is not from a Kubernetes API server"
    ):
        errors.decode_response(body, msgspec.json.decode, request="GET /x")


@pytest.mark.parametrize("header", ["soon", "inf", "nan", "1e999"])
def test_nonsense_in_retry_after_is_ignored(header: str) -> None:
    assert error_from_response(429, b"", request="", retry_after=header).retry_after is None
