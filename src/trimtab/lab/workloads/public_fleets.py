"""Containers as Alibaba has them: at least half a core, busy by day, and most of them with 8 GiB that hardly change.

Fitted to applications, hosts and containers that Alibaba has published; `fitted/alibaba.json` says which,
docs/research/workloads.md shows the fit.
"""

from __future__ import annotations

from trimtab.lab.workloads.fleet_model import Fleet, fitted


class Alibaba(Fleet):
    """Alibaba's containers."""

    name = "alibaba"
    settings_type = fitted("alibaba")


class Azure(Fleet):
    """Azure's machines."""

    name = "azure"
    settings_type = fitted("azure")


class Borg(Fleet):
    """Borg's tasks."""

    name = "borg"
    settings_type = fitted("borg")
