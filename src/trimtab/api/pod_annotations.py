"""Annotations that set options of pods; the writers and the readers share these names.

Intents write them to pod templates, and users may write them in manifests. The node agent reads the cache class.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

CACHE_CLASS: Final = "trimtab.io/cache-class"
"""The class of last-level cache and memory bandwidth that a pod may use."""
POWER_PROFILE: Final = "trimtab.io/power-profile"
"""The power profile of its cores; the pod requests it from the device plugin as an extended resource, which this
repeats."""
CACHE_CLASSES: Final[Mapping[str, str]] = {"guaranteed": "LSR", "burstable": "LS", "besteffort": "BE"}
"""The tier in the node's policy that each cache class stands for."""
