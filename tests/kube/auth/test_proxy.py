"""The proxy of a server: the rules are Go's, so the cases are those of its own tests."""

import pytest
from yarl import URL

from trimtab.kube.auth.proxy import select_proxy
from trimtab.kube.errors import ConfigError

PROXY = "http://proxy:3128"


def chosen(server: str, *, proxy_url: str = "", **environ: str) -> str | None:
    proxy = select_proxy(URL(server), proxy_url=proxy_url, where="cluster 'c'", environ=environ)
    return proxy.url if proxy else None


def test_proxy_of_the_cluster_wins_without_exceptions() -> None:
    environ = {"HTTPS_PROXY": "http://other", "NO_PROXY": "*"}
    assert chosen("https://127.0.0.1:6443", proxy_url=PROXY, **environ) == PROXY


def test_proxy_of_the_environment_depends_on_the_scheme_of_the_server() -> None:
    environ = {"HTTPS_PROXY": PROXY, "http_proxy": "http://plain:8080"}
    assert chosen("https://a.example", **environ) == PROXY
    assert chosen("http://a.example", **environ) == "http://plain:8080"
    assert chosen("https://a.example") is None


def test_proxy_password_becomes_a_hidden_header() -> None:
    proxy = select_proxy(
        URL("https://a"), proxy_url="http://al%40ice:s%20cret@proxy:3128", where="", environ={}
    )
    assert proxy
    assert proxy.url == PROXY
    assert proxy.headers == {"Proxy-Authorization": "Basic YWxAaWNlOnMgY3JldA=="}
    assert "YWxA" not in repr(proxy)


def test_lower_case_wins_and_a_missing_scheme_means_http() -> None:
    assert (
        chosen("https://a.example", HTTPS_PROXY="http://upper", https_proxy="lower:3128")
        == "http://lower:3128"
    )


@pytest.mark.parametrize(
    "server", ["https://localhost:6443", "https://127.0.0.1:6443", "https://127.9.9.9", "https://[::1]:6443"]
)
def test_loopback_is_never_proxied_by_the_environment(server: str) -> None:
    assert chosen(server, HTTPS_PROXY=PROXY) is None


@pytest.mark.parametrize(
    ("server", "no_proxy", "direct"),
    [
        ("https://a.example", "*", True),
        ("https://a.example", "other, a.example", True),
        ("https://a.example", "example", True),
        ("https://a.example", ".example", True),
        ("https://a.example", "*.example", True),
        ("https://A.Example", "a.EXAMPLE", True),
        ("https://example", ".example", False),
        ("https://banana.example", "nana.example", False),
        ("https://a.example:6443", "a.example:6443", True),
        ("https://a.example:6443", "a.example:443", False),
        ("https://a.example", "a.example:443", True),
        ("https://10.1.2.3:6443", "10.0.0.0/8", True),
        ("https://10.1.2.3:6443", "10.1.2.3", True),
        ("https://10.1.2.3:6443", "10.1.2.3:6443", True),
        ("https://10.1.2.3:6443", "10.1.2.3:443", False),
        ("https://10.1.2.3:6443", "1.2.3", False),
        ("https://11.1.2.3:6443", "10.0.0.0/8", False),
        ("https://[fd00::1]:6443", "fd00::1", True),
        ("https://[fd00::1]:6443", "[fd00::1]:6443", True),
        ("https://[fd00::1]:6443", "fd00::/8", True),
        ("https://[fd00::1]:6443", "10.0.0.0/8", False),
        ("https://a.example", "10.0.0.0/8", False),
        ("https://a.example", "nonsense/8, :443, ,", False),
        ("https://a.example", "", False),
    ],
)
def test_proxy_is_skipped_for_hosts_domains_addresses_and_networks(
    server: str, no_proxy: str, *, direct: bool
) -> None:
    assert (chosen(server, HTTPS_PROXY=PROXY, NO_PROXY=no_proxy) is None) is direct


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (
            "socks5://u:hunter2@proxy:1080",
            "cluster 'c': proxy-url: SOCKS proxies are not supported; name an http:// proxy",
        ),
        ("proxy:3128", "cluster 'c': proxy-url: must look like http://HOST:PORT"),
        ("ftp://u:hunter2@proxy", "cluster 'c': proxy-url: must look like http://HOST:PORT"),
        ("http://u:hunter2@[proxy", "cluster 'c': proxy-url: not a URL; write http://HOST:PORT"),
    ],
)
def test_proxy_that_cannot_be_used_is_rejected_without_its_password(url: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        chosen("https://a.example", proxy_url=url)
    assert str(caught.value) == message


def test_proxy_error_names_the_environment_variable() -> None:
    with pytest.raises(ConfigError, match="environment variable HTTPS_PROXY: SOCKS"):
        chosen("https://a.example", https_proxy="socks5://proxy:1080")
