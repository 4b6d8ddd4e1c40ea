"""One look at a cluster as it is now, reading only: what is requested, used, recommended, at risk, and what it costs."""
