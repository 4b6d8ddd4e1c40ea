"""Measurement of objectives: by a KPIProfile's query to Prometheus, or from the history of pods."""
