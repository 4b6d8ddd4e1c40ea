"""Whole fleets with the statistics of public datasets. docs/research/workloads.md shows how well they fit."""

from __future__ import annotations

from trimtab.lab.workloads.fleet_model import FleetGenerator, load_fitted_settings


class Alibaba(FleetGenerator):
    """Alibaba's containers: at least half a core, busy by day, most of them with 8 GiB that hardly change.

    They are fitted to the applications, hosts and containers that `fitted/alibaba.json` names.
    """

    name = "alibaba"
    settings_type = load_fitted_settings("alibaba")


class Azure(FleetGenerator):
    """Azure's virtual machines: small, with low usage and rare peaks.

    Sizes are those published in 2017. No usage of Azure was available, so its course over time is that of machines of
    other clouds; `fitted/azure.json` names them.
    """

    name = "azure"
    settings_type = load_fitted_settings("azure")


class Borg(FleetGenerator):
    """The tasks of Google's Borg: nearly all tiny, and a few that use most of the resources.

    Sizes are as uneven as those published of jobs in 2019, capped at one machine. No usage of Borg was available, so its
    course over time is that of other containers; `fitted/borg.json` names them.
    """

    name = "borg"
    settings_type = load_fitted_settings("borg")
