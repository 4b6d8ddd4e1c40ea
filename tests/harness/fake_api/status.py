"""The failures of an API server, with its own words."""

from typing import Any

from harness.fake_api.kinds import ServedKind


class ApiFailure(Exception):
    """A response with an error status."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        causes: list[dict[str, str]] | None = None,
        token: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.causes = causes
        self.token = token

    @property
    def status(self) -> dict[str, Any]:
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.token} if self.token else {},
            "status": "Failure",
            "message": str(self),
            "reason": self.reason,
            "details": {"causes": self.causes or []},
            "code": self.code,
        }


def not_found(kind: ServedKind, name: str) -> ApiFailure:
    return ApiFailure(404, "NotFound", f'{kind.full_name} "{name}" not found')


def unknown_path() -> ApiFailure:
    return ApiFailure(404, "NotFound", "the server could not find the requested resource")


def already_exists(kind: ServedKind, name: str) -> ApiFailure:
    return ApiFailure(409, "AlreadyExists", f'{kind.full_name} "{name}" already exists')


def conflict(kind: ServedKind, name: str, why: str = "") -> ApiFailure:
    why = why or "the object has been modified; please apply your changes to the latest version and try again"
    return ApiFailure(409, "Conflict", f'Operation cannot be fulfilled on {kind.full_name} "{name}": {why}')


def bad_request(message: str) -> ApiFailure:
    return ApiFailure(400, "BadRequest", message)


def invalid(kind: ServedKind, name: str, field: str, problem: str) -> ApiFailure:
    group = f".{kind.group}" if kind.group else ""
    cause = {"reason": "FieldValueInvalid", "message": problem, "field": field}
    return ApiFailure(
        422, "Invalid", f'{kind.kind}{group} "{name}" is invalid: {field}: {problem}', causes=[cause]
    )


def expired(message: str, *, token: str = "") -> ApiFailure:
    return ApiFailure(410, "Expired", message, token=token)


def not_implemented(what: str) -> ApiFailure:
    return ApiFailure(501, "NotImplemented", f"the fake API server does not implement {what}")
