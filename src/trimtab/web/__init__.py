"""The dashboard: what an SRE looks at every morning, on a live operator, on the demo, or on a file."""
