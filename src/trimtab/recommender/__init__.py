"""Learn from usage and recommend requests and limits for every container."""
