"""Timestamps with microseconds, as Leases and Events have them."""

from __future__ import annotations

from datetime import UTC, datetime


def format_micro_time(moment: datetime) -> str:
    """Format a time as a Kubernetes `MicroTime`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
