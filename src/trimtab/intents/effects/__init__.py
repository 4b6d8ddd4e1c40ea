"""Effects of actions on objectives: estimated from priors first, then learned from recorded events."""
