"""Containers as Alibaba has them: at least half a core, busy by day, and most of them with 8 GiB that hardly change.

Fitted to applications, hosts and containers that Alibaba has published; `fitted/alibaba.json` says which,
docs/research/workloads.md shows the fit.
"""

from __future__ import annotations

from trimtab.lab.workloads.fleet_model import FleetGenerator, load_fitted_settings


class Alibaba(FleetGenerator):
    """Alibaba's containers."""

    name = "alibaba"
    settings_type = load_fitted_settings("alibaba")


class Azure(FleetGenerator):
    """Azure's machines."""

    name = "azure"
    settings_type = load_fitted_settings("azure")


class Borg(FleetGenerator):
    """Borg's tasks."""

    name = "borg"
    settings_type = load_fitted_settings("borg")
