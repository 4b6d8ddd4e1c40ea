"""What the fake API server says that it serves."""

from __future__ import annotations

from harness.fake_api.kinds import ServedKind
from harness.fake_api.objects import Object, ObjectStore

VERSION: Object = {"major": "1", "minor": "36", "gitVersion": "v1.36.3", "platform": "linux/amd64"}


def aggregated_discovery(store: ObjectStore, *, core: bool) -> Object:
    groups: dict[str, dict[str, list[Object]]] = {}
    for kind in store.kinds:
        if bool(kind.group) != core:
            groups.setdefault(kind.group, {}).setdefault(kind.version, []).append(_entry(kind))
    items = [
        {
            "metadata": {"name": group},
            "versions": [
                {"version": version, "freshness": "Current", "resources": resources}
                for version, resources in versions.items()
            ],
        }
        for group, versions in groups.items()
    ]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def _entry(kind: ServedKind) -> Object:
    return {
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.kind.lower(),
        "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
        "subresources": [
            {"subresource": name, "verbs": ["get", "patch", "update"]} for name in sorted(kind.subresources)
        ],
    }


def resource_list(store: ObjectStore, path: str) -> Object | None:
    """Return the resources of a group and version; None if the path is none of a group."""
    match path.strip("/").split("/"):
        case ["api", version]:
            group = ""
        case ["apis", group, version]:
            pass
        case _:
            return None
    found = [kind for kind in store.kinds if (kind.group, kind.version) == (group, version)]
    if not found:
        return None
    names = [(kind, "") for kind in found] + [
        (kind, f"/{part}") for kind in found for part in kind.subresources
    ]
    resources = [
        {"name": kind.plural + part, "namespaced": kind.namespaced, "kind": kind.kind} for kind, part in names
    ]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": found[0].api_version,
        "resources": resources,
    }
