"""Label and field selectors."""

import re
from collections.abc import Callable
from typing import Any

from harness.fake_api.status import bad_request

Object = dict[str, Any]
Matches = Callable[[Object], bool]

_VALUE = re.compile(r"^[A-Za-z0-9._-]*$")
_SETS = re.compile(r"^(?P<key>[^\s!=,()]+)\s+(?P<operator>in|notin)\s+\((?P<values>[^)]*)\)$")


def match_labels(selector: str) -> Matches:
    """Return whether an object's labels match a selector such as `app=web,!hidden,tier in (a, b)`."""
    tests = [_label_test(part.strip()) for part in re.split(r",(?![^(]*\))", selector) if part.strip()]
    return lambda body: all(test(body["metadata"].get("labels") or {}) for test in tests)


def _label_test(part: str) -> Callable[[dict[str, str]], bool]:
    if found := _SETS.match(part):
        key, values = found["key"], {each.strip() for each in found["values"].split(",")}
        is_in = found["operator"] == "in"
        return lambda labels: (labels.get(key) in values) if is_in else (labels.get(key) not in values)
    if part.startswith("!"):
        return lambda labels: part[1:].strip() not in labels
    for operator in ("!=", "==", "="):
        key, sign, value = (each.strip() for each in part.partition(operator))
        if sign:
            if not _VALUE.match(value):
                raise bad_request(f"unable to parse requirement: found '{value}', expected: identifier")
            return lambda labels: (labels.get(key) != value) == (operator == "!=")
    return lambda labels: part in labels


def match_selector(selector: Object) -> Matches:
    """Return whether labels match the selector of a workload, a budget or a namespace."""
    wanted = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    for each in selector.get("matchExpressions") or ():
        key, values = each["key"], ", ".join(each.get("values") or ())
        wanted.append(
            {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": key}.get(
                each["operator"], f"!{key}"
            )
        )
    return match_labels(",".join(wanted))


def match_fields(selector: str) -> Matches:
    """Return whether an object's fields match a selector such as `metadata.name=web,status.phase!=Failed`."""
    tests = []
    for part in filter(None, selector.split(",")):
        is_equal = "!=" not in part
        path, _, value = part.partition("=" if is_equal else "!=")
        tests.append((path.split("."), value.removeprefix("="), is_equal))
    return lambda body: all((_read(body, path) == value) == is_equal for path, value, is_equal in tests)


def _read(body: Any, path: list[str]) -> str:
    for name in path:
        body = body.get(name) if isinstance(body, dict) else None
    return "" if body is None else str(body)
