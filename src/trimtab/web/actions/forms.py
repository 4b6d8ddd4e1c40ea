"""What a form says: as browsers send it by default, and no more of it than a form of ours ever has."""

from __future__ import annotations

from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request

MAX_BYTES = 64 * 1024
"""A token of many groups is long; nothing else is."""


async def read_form(request: Request) -> dict[str, str]:
    """Its fields; of one that is given twice, the last."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_BYTES:
            raise HTTPException(413, f"a form is no longer than {MAX_BYTES} bytes")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=20))
    except ValueError:
        raise HTTPException(400, "this is no form") from None
