"""Reviews: requests about users and rights, which store nothing."""

from __future__ import annotations

from harness.fake_api.access import Attributes, User, is_allowed
from harness.fake_api.kinds import ServedKind
from harness.fake_api.objects import Object, ObjectStore
from harness.fake_api.status import not_implemented

_AUTHORIZATION, _AUTHENTICATION = "authorization.k8s.io", "authentication.k8s.io"

REVIEWS = {
    (_AUTHORIZATION, "selfsubjectaccessreviews"): "SelfSubjectAccessReview",
    (_AUTHORIZATION, "subjectaccessreviews"): "SubjectAccessReview",
    (_AUTHENTICATION, "selfsubjectreviews"): "SelfSubjectReview",
}


def review(store: ObjectStore, kind: ServedKind, user: User, body: Object) -> Object:
    status: Object
    match kind.plural:
        case "selfsubjectreviews":
            status = {"userInfo": user.info}
        case "selfsubjectaccessreviews":
            status = {"allowed": _is_allowed(store, user, body["spec"])}
        case "subjectaccessreviews":
            asked = User(body["spec"].get("user", ""), tuple(body["spec"].get("groups") or ()))
            status = {"allowed": _is_allowed(store, asked, body["spec"])}
        case other:
            raise not_implemented(other)
    return {"kind": kind.kind, "apiVersion": kind.api_version, "spec": body.get("spec", {}), "status": status}


def _is_allowed(store: ObjectStore, user: User, spec: Object) -> bool:
    wanted = spec["resourceAttributes"]
    part = wanted.get("subresource", "")
    resource = wanted.get("resource", "") + (f"/{part}" if part else "")
    return is_allowed(
        store,
        user,
        Attributes(
            wanted.get("verb", ""),
            wanted.get("group", ""),
            resource,
            wanted.get("namespace", ""),
            wanted.get("name", ""),
        ),
    )
