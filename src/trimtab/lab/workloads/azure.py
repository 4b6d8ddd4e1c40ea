"""A fleet; its numbers are first ones, by hand, and not yet fitted."""

from __future__ import annotations

from trimtab.lab.workloads.fleet import Fleet, fitted


class Azure(Fleet):
    """A fleet."""

    name = "azure"
    settings_type = fitted("azure")
