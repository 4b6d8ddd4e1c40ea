"""A fleet; its numbers are first ones, by hand, and not yet fitted."""

from __future__ import annotations

from trimtab.lab.workloads.fleet import Fleet, FleetSettings, Quantiles


class BorgSettings(FleetSettings):
    """A fleet."""

    mean_cores: Quantiles = (0.005, 0.01, 0.05, 0.15, 0.5, 2.0, 6.0, 16.0)
    variability: Quantiles = (0.02, 0.1, 0.25, 0.5, 0.9, 2.0, 3.0, 5.0)
    persistence: Quantiles = (0.05, 0.2, 0.5, 0.75, 0.9, 0.98, 0.99, 0.999)
    daily: Quantiles = (0.001, 0.01, 0.05, 0.15, 0.4, 0.7, 0.8, 0.9)
    burst_share: Quantiles = (0.0, 0.0, 0.002, 0.01, 0.03, 0.08, 0.1, 0.2)
    burst_size: float = 3.0
    burst_length: float = 900.0
    mean_mib: Quantiles = (16.0, 64.0, 200.0, 500.0, 1500.0, 6000.0, 16000.0, 64000.0)
    memory_variability: Quantiles = (0.001, 0.005, 0.02, 0.05, 0.12, 0.4, 0.7, 1.5)
    memory_follows: float = 0.3
    sizes_together: float = 0.5
    small_vary: float = 0.3


class Borg(Fleet):
    """A fleet."""

    name = "borg"
    settings_type = BorgSettings
