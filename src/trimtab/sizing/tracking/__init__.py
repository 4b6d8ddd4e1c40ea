"""Evidence that is tracked beside a strategy: peaks, OOM kills, coverage, earlier proposals."""
