"""Effects: what deeds do to objectives: guessed at first, then learned from what was recorded."""
