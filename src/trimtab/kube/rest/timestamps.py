"""Times as Kubernetes writes them where a second is too coarse: in Leases and Events."""

from __future__ import annotations

from datetime import UTC, datetime


def format_micro_time(moment: datetime) -> str:
    """A time as a `MicroTime`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
