"""One record type for each Kubernetes kind that Trimtab reads, with its projection from JSON."""
