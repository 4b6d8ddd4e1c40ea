"""Select the proxy for requests to the API server.

The rules are client-go's: the cluster's `proxy-url` is used if it is set; otherwise HTTPS_PROXY or HTTP_PROXY (by the
scheme of the server) and NO_PROXY apply, in lower or upper case, and loopback is never proxied. SOCKS is rejected,
because aiohttp does not support it.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass

from yarl import URL

from trimtab.kube.auth.credentials import RedactedText, format_basic_authorization
from trimtab.kube.errors import ConfigError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True)
class Proxy:
    """A proxy and the credentials for it."""

    url: str
    authorization: RedactedText | None = None

    @property
    def headers(self) -> dict[str, str]:
        return {"Proxy-Authorization": self.authorization.reveal()} if self.authorization else {}


def select_proxy(server: URL, *, proxy_url: str, where: str, environ: Mapping[str, str]) -> Proxy | None:
    """Return the proxy for this server, or None; `where` names the cluster in messages."""
    if proxy_url:
        return _parse_proxy(proxy_url, where=f"{where}: proxy-url")
    name = f"{server.scheme}_proxy"
    value = _get_variable(environ, name)
    if not value or _bypasses_proxy(server, _get_variable(environ, "no_proxy")):
        return None
    return _parse_proxy(
        value if "://" in value else f"http://{value}", where=f"environment variable {name.upper()}"
    )


def _get_variable(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name) or environ.get(name.upper()) or ""


def _parse_proxy(text: str, *, where: str) -> Proxy:
    """Move the password from the URL, which aiohttp prints in its errors, to a header; our messages never contain the
    URL.
    """
    try:
        url = URL(text)
    except ValueError:
        raise ConfigError(f"{where}: not a URL; write http://HOST:PORT") from None
    if url.scheme.startswith("socks"):
        raise ConfigError(f"{where}: SOCKS proxies are not supported; name an http:// proxy")
    if url.scheme not in {"http", "https"} or not url.host:
        raise ConfigError(f"{where}: must look like http://HOST:PORT")
    authorization = (
        format_basic_authorization(url.user, RedactedText(url.password or "")) if url.user else None
    )
    return Proxy(str(url.with_user(None)), authorization)


def _bypasses_proxy(server: URL, no_proxy: str) -> bool:
    host, port = (server.host or "").lower(), server.port
    address = _parse_address(host)
    if host == "localhost" or (address and address.is_loopback):
        return True
    rules = [rule.strip().lower() for rule in no_proxy.split(",")]
    return any(_matches(rule, host=host, port=port, address=address) for rule in rules if rule)


def _matches(rule: str, *, host: str, port: int | None, address: Address | None) -> bool:
    """Return True if a NO_PROXY rule matches a host; a rule is `*`, 10.0.0.0/8, 10.1.2.3, example.org or
    .example.org, optionally with :port.
    """
    if rule == "*":
        return True
    if "/" in rule:
        try:
            return address is not None and address in ipaddress.ip_network(rule, strict=False)
        except ValueError:
            return False
    name, only_port = rule, ""
    if ":" in rule and not _parse_address(rule):
        name, _, only_port = rule.rpartition(":")
        name = name.removeprefix("[").removesuffix("]")
    if not name or only_port not in {"", str(port)}:
        return False
    if address or _parse_address(name):
        return address == _parse_address(name)
    name = name.removeprefix("*")
    return host == name or host.endswith(name if name.startswith(".") else f".{name}")


def _parse_address(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
