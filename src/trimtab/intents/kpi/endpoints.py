"""Refuse addresses that no KPI may be measured at: the operator's own pod, its node, and the API server.

An administrator allows servers by name; whoever controls that name in the DNS could point it there. Pure, but for
the look-up.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import socket

from trimtab.errors import TrimtabError

_API_SERVER = re.compile(r"kubernetes(\.default(\.svc(\..*)?)?)?\.?", re.IGNORECASE)


def find_forbidden_address(host: str) -> str:
    """Say why a host name or address is forbidden; empty if it is not. Names are not looked up."""
    if _API_SERVER.fullmatch(host) or host == os.environ.get("KUBERNETES_SERVICE_HOST"):
        return "the API server"
    if host.lower().rstrip(".") == "localhost" or host.lower().endswith(".localhost"):
        return "a loopback address"
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    if address.is_loopback or address.is_unspecified:
        return "a loopback address"
    return "a link-local address" if address.is_link_local or address.is_multicast else ""


async def check_endpoint(host: str, port: int) -> None:
    """Look a host up, and raise TrimtabError if any of its addresses is forbidden."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise TrimtabError("the server of props.endpoint has no address in the DNS") from None
    for *_, address in found:
        if why := find_forbidden_address(host) or find_forbidden_address(str(address[0])):
            raise TrimtabError(f"the server of props.endpoint is {why}, which is never queried")
