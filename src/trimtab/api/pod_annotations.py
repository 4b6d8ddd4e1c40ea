"""Options of pods, as annotations on them: who sets them and who heeds them need the same words, and nothing else.

An intent's deed writes them on a pod template; so may whoever writes a manifest. The node's agent reads the cache class.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

CACHE_CLASS: Final = "trimtab.io/cache-class"
"""Which part of the last-level cache, and of the memory bandwidth, a pod may use."""
POWER_PROFILE: Final = "trimtab.io/power-profile"
"""What its cores run at; the device plugin is asked for it by an extended resource, which this only repeats."""
CACHE_CLASSES: Final[Mapping[str, str]] = {"guaranteed": "LSR", "burstable": "LS", "besteffort": "BE"}
"""The tier whose class of the node's policy each stands for."""
