"""The agent's configuration."""

import pytest

from trimtab.errors import TrimtabError
from trimtab.node.config import parse_kubelet_url


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("https://10.0.0.5:10250", "https://10.0.0.5:10250"),
        ("https://fd00::5:10250", "https://[fd00::5]:10250"),
        ("https://[fd00::5]:10250", "https://[fd00::5]:10250"),
        ("https://::ffff:10.0.0.5:10250", "https://[::ffff:10.0.0.5]:10250"),
        ("https://node-1", "https://node-1"),
    ],
)
def test_kubelet_url_accepts_ipv4_and_ipv6(given: str, url: str) -> None:
    assert parse_kubelet_url(given) == url


@pytest.mark.parametrize(
    "given", ["10.0.0.5:10250", "https://:10250", "https://node:port", "https://[::1:10250"]
)
def test_kubelet_url_rejects_invalid_urls(given: str) -> None:
    with pytest.raises(TrimtabError, match="is not the URL of a kubelet; use the form"):
        parse_kubelet_url(given)
