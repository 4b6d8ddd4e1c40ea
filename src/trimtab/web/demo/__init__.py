"""The demo: a believable cluster in the lab, the production operator on it in fast time, and what came of it."""
