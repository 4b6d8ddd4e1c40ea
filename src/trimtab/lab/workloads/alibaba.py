"""A fleet; its numbers are first ones, by hand, and not yet fitted."""

from __future__ import annotations

from trimtab.lab.workloads.fleet import Fleet, fitted


class Alibaba(Fleet):
    """A fleet."""

    name = "alibaba"
    settings_type = fitted("alibaba")
