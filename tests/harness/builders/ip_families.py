"""List the IPv4 and IPv6 addresses at which a server without a host must answer."""

import socket

import pytest


def _has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


AT_EITHER_HOST = pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        pytest.param("::1", marks=pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6")),
    ],
)
