"""Errors of usage sources, as one tree.

TrimtabError
└── UsageError             any failure to read usage; the message names the source and the remedy
    ├── SourceUnavailable  no response, or a request to retry later
    ├── SourceRefused      a permanent refusal: credentials, tenant, address or query
    ├── QueryTooLarge      over a limit of the source; a smaller query may succeed
    └── UsageResponseError a truncated or unexpected response; nothing of it is used
"""

from __future__ import annotations

from trimtab.errors import TrimtabError


class UsageError(TrimtabError):
    """A failure to read usage."""


class SourceUnavailable(UsageError):
    """The source did not respond or is overloaded.

    `retry_after` is the delay in seconds that it asked for.
    """

    def __init__(self, message: str, *, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class SourceTimeout(SourceUnavailable):
    """The source did not respond in time."""


class SourceRefused(UsageError):
    """The source refused the request permanently; a retry cannot succeed."""


class QueryTooLarge(UsageError):
    """The query exceeds a limit of the source."""


class UsageResponseError(UsageError):
    """The response does not match the request."""
