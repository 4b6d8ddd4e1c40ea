"""Gives an expensive property more examples in `make test` than in `make test-fast`."""

from hypothesis import settings

FAST_PROFILE = "fast"
"""The profile of hypothesis that `make test-fast` chooses."""
FAST_EXAMPLES = 100


def limit_examples(most: int) -> int:
    """Return the number of examples: `most`, or 100 in `make test-fast` if that is less."""
    return min(most, FAST_EXAMPLES) if settings.get_current_profile_name() == FAST_PROFILE else most
