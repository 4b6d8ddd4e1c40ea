"""The four kinds of patches, as an API server merges them into an object."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

from harness.fake_api.kinds import ServedKind
from harness.fake_api.status import ApiFailure, bad_request

APPLY = "application/apply-patch+yaml"

Object = dict[str, Any]
Path = tuple[str, ...]

MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "containerStatuses": "name",
    "conditions": "type",
    "env": "name",
    "volumes": "name",
    "tolerations": "key",
    "ownerReferences": "uid",
}
"""The lists whose items have a key; a patch replaces other lists as a whole."""


def merge(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return deepcopy(patch)
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged


def merge_strategically(target: Any, patch: Any, name: str = "") -> Any:
    """Apply a strategic merge patch: lists with a key are merged item by item."""
    if isinstance(patch, dict):
        merged = dict(target) if isinstance(target, dict) else {}
        for field, value in patch.items():
            if field == "$patch":
                continue
            if value is None:
                merged.pop(field, None)
            else:
                merged[field] = merge_strategically(merged.get(field), value, field)
        return merged
    key = MERGE_KEYS.get(name)
    if (
        not isinstance(patch, list)
        or key is None
        or not all(isinstance(each, dict) and key in each for each in patch)
    ):
        return deepcopy(patch)
    items = list(target or ())
    for each in patch:
        place = next((number for number, item in enumerate(items) if item.get(key) == each[key]), None)
        if each.get("$patch") == "delete":
            items = [item for item in items if item.get(key) != each[key]]
        elif place is None:
            items.append(merge_strategically({}, each))
        else:
            items[place] = merge_strategically(items[place], each)
    return items


def apply_json_patch(target: Any, operations: Any) -> Any:
    """Apply a JSON patch (RFC 6902): add, remove, replace and test."""
    document = deepcopy(target)
    for operation in operations:
        *parents, last = [
            part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]
        ]
        parent = document
        for part in parents:
            parent = parent[int(part)] if isinstance(parent, list) else parent.get(part)
            if parent is None:
                raise ApiFailure(422, "Invalid", f"the path {operation['path']} does not exist")
        _operate(parent, last, operation)
    return document


def _operate(parent: Any, last: str, operation: Object) -> None:
    place: Any = last
    if isinstance(parent, list):
        place = len(parent) if last == "-" else int(last)
    match operation["op"]:
        case "add" if isinstance(parent, list):
            parent.insert(place, operation["value"])
        case "add":
            parent[place] = operation["value"]
        case "replace" | "remove" | "test" if not isinstance(parent, list) and place not in parent:
            raise ApiFailure(422, "Invalid", f"the path {operation['path']} does not exist")
        case "replace":
            parent[place] = operation["value"]
        case "remove":
            del parent[place]
        case "test":
            if parent[place] != operation["value"]:
                raise ApiFailure(422, "Invalid", f"the test of {operation['path']} failed")
        case other:
            raise bad_request(f"unknown operation {other}")


def apply_configuration(
    kind: ServedKind, live: Object | None, config: Object, *, manager: str, force: bool, subresource: str
) -> Object:
    """Apply server-side: set the fields of the configuration, and remove those that this manager no longer names."""
    name = config["metadata"]["name"]
    ours = set(_leaves(_owned(config)))
    managed = deepcopy((live or {}).get("metadata", {}).get("managedFields") or [])
    before: set[Path] = set()
    kept = []
    conflicts = []
    for entry in managed:
        fields = set(map(tuple, entry["fieldsV1"]["paths"]))
        is_same_part = entry.get("subresource", "") == subresource
        if entry["manager"] == manager and entry["operation"] == "Apply" and is_same_part:
            before = fields
            continue
        changed = {path for path in fields & ours if _get(live, path) != _get(config, path)}
        if changed and not force:
            conflicts += [(entry["manager"], path) for path in sorted(changed)]
        entry["fieldsV1"] = {"paths": sorted(fields - changed)}
        kept.append(entry)
    if conflicts:
        causes = [
            {"reason": "FieldManagerConflict", "message": f'conflict with "{who}"', "field": _format(path)}
            for who, path in conflicts
        ]
        who = conflicts[0][0]
        fields_text = ", ".join(_format(path) for _, path in conflicts)
        text = f'Apply failed with {len(conflicts)} conflict{"s" * (len(conflicts) > 1)}: conflicts with "{who}": {fields_text}'
        raise ApiFailure(409, "Conflict", text, causes=causes)
    result: Object = deepcopy(live) if live else {"metadata": {"name": name}}
    still_owned = {path for entry in kept for path in map(tuple, entry["fieldsV1"]["paths"])}
    for path in before - ours - still_owned:
        _remove(result, path)
    result = merge_strategically(result, {key: config[key] for key in config if key != "metadata"})
    metadata = {key: value for key, value in config["metadata"].items() if key != "managedFields"}
    result["metadata"] = merge_strategically(result["metadata"], metadata)
    kept.append(_entry(kind, manager, "Apply", ours, subresource))
    result["metadata"]["managedFields"] = kept
    return result


def manage_update(
    kind: ServedKind, live: Object | None, new: Object, *, manager: str, subresource: str
) -> None:
    """Record who owns the fields that an update sets."""
    changed = {path for path in _leaves(_owned(new)) if live is None or _get(live, path) != _get(new, path)}
    kept = []
    for entry in deepcopy((live or {}).get("metadata", {}).get("managedFields") or []):
        fields = set(map(tuple, entry["fieldsV1"]["paths"])) - changed
        if entry["manager"] == manager and entry["operation"] == "Update":
            changed |= fields
        elif fields:
            kept.append({**entry, "fieldsV1": {"paths": sorted(fields)}})
    if changed:
        kept.append(_entry(kind, manager, "Update", changed, subresource))
    new["metadata"]["managedFields"] = kept


def _entry(kind: ServedKind, manager: str, operation: str, fields: set[Path], subresource: str) -> Object:
    entry = {
        "manager": manager,
        "operation": operation,
        "apiVersion": kind.api_version,
        "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "fieldsType": "FieldsV1",
        # The real server writes a tree of fields; nobody reads it here.
        "fieldsV1": {"paths": sorted(fields)},
    }
    return entry | ({"subresource": subresource} if subresource else {})


def _owned(body: Object) -> Object:
    """Return the part of an object that has owners."""
    metadata = body.get("metadata", {})
    owned = {name: metadata[name] for name in ("labels", "annotations", "finalizers") if name in metadata}
    rest = {name: value for name, value in body.items() if name not in {"apiVersion", "kind", "metadata"}}
    return rest | ({"metadata": owned} if owned else {})


def _leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    if isinstance(value, dict) and value:
        for name, each in value.items():
            yield from _leaves(each, (*path, name))
    elif isinstance(value, list) and (key := MERGE_KEYS.get(path[-1])) and value:
        for each in value:
            yield from _leaves(each, (*path, f"[{each.get(key)}]"))
    else:
        yield path


def _step(value: Any, part: str, parent: str) -> Any:
    if isinstance(value, list):
        key = MERGE_KEYS.get(parent, "name")
        return next((each for each in value if f"[{each.get(key)}]" == part), None)
    return value.get(part) if isinstance(value, dict) else None


def _get(value: Any, path: Path) -> Any:
    for number, part in enumerate(path):
        value = _step(value, part, path[number - 1])
    return value


def _remove(body: Object, path: Path) -> None:
    parent = _get(body, path[:-1])
    if isinstance(parent, dict):
        parent.pop(path[-1], None)
        if not parent and len(path) > 1 and path[-2].startswith("["):
            return
    items = _get(body, path[:-2]) if len(path) > 2 else None
    if isinstance(items, list) and path[-2].startswith("["):
        key = MERGE_KEYS.get(path[-3], "name")
        items[:] = [each for each in items if f"[{each.get(key)}]" != path[-2] or len(each) > 1]


def _format(path: Path) -> str:
    return "." + ".".join(path).replace(".[", "[")
