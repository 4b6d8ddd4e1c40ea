"""Guards turn a proposed target into a safe recommendation, and explain each step."""
