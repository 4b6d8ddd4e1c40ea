"""Match policies to workloads, resolve them, and write their status."""
