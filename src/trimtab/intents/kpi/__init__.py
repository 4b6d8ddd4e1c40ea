"""How objectives fare: a KPIProfile's query asked of Prometheus, or the history of the pods; unknown is never met."""
