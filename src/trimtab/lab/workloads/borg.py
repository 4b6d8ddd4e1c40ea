"""A fleet; its numbers are first ones, by hand, and not yet fitted."""

from __future__ import annotations

from trimtab.lab.workloads.fleet import Fleet, fitted


class Borg(Fleet):
    """A fleet."""

    name = "borg"
    settings_type = fitted("borg")
