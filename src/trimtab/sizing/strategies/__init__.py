"""Strategies that the product recommends: trimtab, vpa and percentile."""
