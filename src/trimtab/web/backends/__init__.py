"""Backends of the dashboard: a live operator or a snapshot of one."""
