"""The node agent: sees what each pod uses and suffers, second by second, and keeps latency-sensitive ones fast."""
