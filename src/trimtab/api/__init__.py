"""The kinds and their meaning."""
