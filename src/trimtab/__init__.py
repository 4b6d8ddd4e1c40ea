"""Trimtab keeps every workload of a Kubernetes cluster at the smallest size that still meets its objectives."""

__version__ = "0.1.0"
