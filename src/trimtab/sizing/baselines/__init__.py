"""Strategies for comparison: what other tools and plain statistics would recommend."""
