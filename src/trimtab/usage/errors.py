"""Everything that can go wrong between us and a source of usage, as one tree.

TrimtabError
└── UsageError          any failure of reading usage; the message names the source and the fix
    ├── SourceAway      no answer, or one that says: later. The same question may be answered a little later
    ├── SourceRefused   it does not believe or does not understand us: credentials, tenant, address, query
    ├── TooMuchAsked    over the source's limits: a smaller question may be answered
    └── BadAnswer       an answer that is cut off or no answer to what was asked: nothing of it is used
"""

from __future__ import annotations

from trimtab.errors import TrimtabError


class UsageError(TrimtabError):
    """Any failure of reading usage."""


class SourceUnavailable(UsageError):
    """No answer came, or the source is too busy for one; `retry_after` is how long it asked us to wait."""

    def __init__(self, message: str, *, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class SourceTimeout(SourceUnavailable):
    """No answer came in time."""


class SourceRefused(UsageError):
    """The source answered that it will not: asking again changes nothing."""


class QueryTooLarge(UsageError):
    """The question is over one of the source's limits."""


class UsageResponseError(UsageError):
    """An answer that cannot be what was asked for."""
