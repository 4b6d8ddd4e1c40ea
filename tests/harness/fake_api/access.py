"""Who asks, and what RBAC lets them do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from multidict import CIMultiDictProxy

from harness.fake_api.objects import ObjectStore
from harness.fake_api.status import ApiFailure

Object = dict[str, Any]

MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
_RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True)
class User:
    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, list[str]] = field(default_factory=dict)

    @property
    def info(self) -> Object:
        found: Object = {"username": self.name, "groups": list(self.groups)}
        if self.uid:
            found["uid"] = self.uid
        if self.extra:
            found["extra"] = dict(self.extra)
        return found


ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))


@dataclass(frozen=True)
class Attributes:
    """One action, as RBAC decides about it."""

    verb: str
    group: str = ""
    resource: str = ""
    """With its subresource, such as `pods/resize`."""
    namespace: str = ""
    name: str = ""

    @property
    def text(self) -> str:
        where = f' in the namespace "{self.namespace}"' if self.namespace else " at the cluster scope"
        return f'cannot {self.verb} resource "{self.resource}" in API group "{self.group}"{where}'


def default_roles() -> Iterator[tuple[str, Object]]:
    """Yield the roles and bindings that every cluster has, each with its resource."""
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    readable = {
        "": [
            "pods",
            "services",
            "configmaps",
            "limitranges",
            "resourcequotas",
            "namespaces",
            "serviceaccounts",
        ],
        "apps": ["deployments", "statefulsets", "daemonsets", "replicasets"],
        "batch": ["jobs", "cronjobs"],
        "autoscaling": ["horizontalpodautoscalers"],
        "policy": ["poddisruptionbudgets"],
    }
    view = [
        {"apiGroups": [group], "resources": resources, "verbs": ["get", "list", "watch"]}
        for group, resources in readable.items()
    ]
    reviews = [
        {
            "apiGroups": ["authorization.k8s.io", "authentication.k8s.io"],
            "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"],
            "verbs": ["create"],
        }
    ]
    for name, rules, group in (
        ("cluster-admin", [everything], MASTERS),
        ("view", view, ""),
        ("system:basic-user", reviews, AUTHENTICATED),
    ):
        yield "clusterroles", {"metadata": {"name": name}, "rules": rules}
        if group:
            subject = {"kind": "Group", "name": group, "apiGroup": _RBAC}
            role = {"kind": "ClusterRole", "name": name, "apiGroup": _RBAC}
            yield "clusterrolebindings", {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}


def impersonate(user: User, headers: CIMultiDictProxy[str]) -> User:
    """Return whom the user acts as."""
    name = headers.get("Impersonate-User")
    if name is None:
        return user
    if MASTERS not in user.groups:
        raise ApiFailure(
            403, "Forbidden", f'users "{name}" is forbidden: User "{user.name}" cannot impersonate'
        )
    extra: dict[str, list[str]] = {}
    for header, value in headers.items():
        if header.lower().startswith("impersonate-extra-"):
            key = unquote(header[len("impersonate-extra-") :]).lower()
            extra.setdefault(key, []).append(value)
    groups = tuple(headers.getall("Impersonate-Group", []))
    if not groups:
        groups = (AUTHENTICATED,)
    return User(name, groups, headers.get("Impersonate-Uid", ""), extra)


def is_allowed(store: ObjectStore, user: User, wanted: Attributes) -> bool:
    """Return whether any role that is bound to the user has a rule for this."""
    return any(_covers(rule, wanted) for rule in _rules(store, user, wanted.namespace))


def _rules(store: ObjectStore, user: User, namespace: str) -> Iterator[Object]:
    roles, cluster_roles = store.kind_named("roles"), store.kind_named("clusterroles")
    bindings = store.select(store.kind_named("clusterrolebindings"))
    if namespace:
        bindings = bindings + store.select(store.kind_named("rolebindings"), namespace)
    for binding in bindings:
        if not any(_is_subject(user, each) for each in binding.get("subjects") or ()):
            continue
        reference = binding["roleRef"]
        if reference["kind"] == "ClusterRole":
            role = store.find(cluster_roles, "", reference["name"])
        else:
            role = store.find(roles, namespace, reference["name"])
        yield from (role or {}).get("rules") or ()


def _is_subject(user: User, subject: Object) -> bool:
    match subject["kind"]:
        case "User":
            return bool(subject["name"] == user.name)
        case "Group":
            return subject["name"] in user.groups
        case _:
            return user.name == f"system:serviceaccount:{subject.get('namespace', '')}:{subject['name']}"


def _covers(rule: Object, wanted: Attributes) -> bool:
    parts = (
        (rule.get("verbs") or (), {wanted.verb, "*"}),
        (rule.get("apiGroups") or (), {wanted.group, "*"}),
        (rule.get("resources") or (), {wanted.resource, "*"}),
    )
    names = rule.get("resourceNames") or ()
    return all(set(given) & fits for given, fits in parts) and (not names or wanted.name in names)
