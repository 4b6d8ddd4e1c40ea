"""What the dashboard reads: a live operator or a snapshot of one."""
