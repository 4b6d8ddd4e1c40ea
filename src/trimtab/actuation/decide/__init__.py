"""Pure decisions: which action a change needs next, and why it waits."""
