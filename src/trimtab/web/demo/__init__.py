"""The demo: the production operator on a realistic simulated cluster in fast time, and a summary."""
