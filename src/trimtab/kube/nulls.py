"""Nulls in JSON and YAML, which Go treats as absent fields."""

from __future__ import annotations

from typing import Any


def drop_nulls(value: Any) -> Any:
    """Remove null fields from JSON or YAML."""
    if isinstance(value, dict):
        return {key: drop_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [drop_nulls(item) for item in value]
    return value
