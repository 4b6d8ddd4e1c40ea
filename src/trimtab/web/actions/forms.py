"""Parse URL-encoded forms with a size limit."""

from __future__ import annotations

from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request

MAX_BYTES = 64 * 1024
"""The maximum size of a form; only a token with many groups is long."""


async def read_form(request: Request) -> dict[str, str]:
    """Read the fields of a form; the last value wins."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_BYTES:
            raise HTTPException(413, f"the form is larger than {MAX_BYTES} bytes; shorten it")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=20))
    except ValueError:
        raise HTTPException(400, "the request body is not a URL-encoded form") from None
