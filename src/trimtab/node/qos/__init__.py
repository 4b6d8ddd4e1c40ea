"""The quality-of-service loop of a node: run the strategies, write knobs, evict."""
