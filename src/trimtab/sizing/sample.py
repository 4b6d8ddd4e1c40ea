"""Which samples are believed. What no machine can use is a fault of the measurement, and no strategy learns from it.

NaN (no sample), the infinities and negative numbers fail the same test: `0 <= value <= most`.
"""

CPU_MOST = 1e5
"""Cores: ten times the largest machine that there is."""

MEMORY_MOST = 1e14
"""Bytes: 100 TB, where the VPA recommender ends too."""
