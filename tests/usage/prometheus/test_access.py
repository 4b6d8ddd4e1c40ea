"""Test TLS, password and proxy authentication against a real Prometheus."""

import pytest
from aiohttp import web
from pydantic import ValidationError

from trimtab.http_server import serve_application
from trimtab.kube.auth.credentials import RedactedText, format_basic_authorization
from trimtab.usage.prometheus import Prometheus, PrometheusSettings
from trimtab.usage.prometheus.endpoint import find_endpoints


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("https://prometheus.example.org/api/prom", "http://proxy.corp:3128"),
        ("https://prometheus.intern.corp", None),
        ("https://prometheus.monitoring.svc:9090", None),
        ("https://prometheus.monitoring.svc.cluster.local.:9090", None),
        ("https://prometheus.monitoring.svc.k8s.example.org:9090", None),
        ("https://203.0.113.7:9090", "http://proxy.corp:3128"),
        ("https://[2001:db8::7]:9090", "http://proxy.corp:3128"),
        ("https://prometheus:9090", None),
        ("http://prometheus.example.org", None),
    ],
)
async def test_find_endpoints_uses_environment_proxy_for_external_hosts(
    monkeypatch: pytest.MonkeyPatch, url: str, proxy: str | None
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.corp:3128")
    monkeypatch.setenv("NO_PROXY", ".intern.corp")
    for name in ("https_proxy", "http_proxy", "HTTP_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    ((connection, path),) = await find_endpoints(PrometheusSettings(url=url), None)
    assert (connection.proxy, path) == (proxy, "")


async def test_prometheus_authenticates_to_proxy_without_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    credentials: list[str | None] = []

    async def refuse(request: web.Request) -> web.Response:
        credentials.append(request.headers.get("Proxy-Authorization"))
        return web.Response(status=403)

    proxy = web.Application()
    proxy.router.add_route("*", "/{path:.*}", refuse)
    async with serve_application(proxy, "127.0.0.1:0") as port:
        monkeypatch.setenv("http_proxy", f"http://me:secret@127.0.0.1:{port}")
        monkeypatch.setenv("no_proxy", "elsewhere.example.org")
        async with Prometheus(PrometheusSettings(url="http://prometheus.example.org:9090")) as prometheus:
            assert not (await prometheus.check()).ok
    assert credentials[0] == format_basic_authorization("me", RedactedText("secret")).reveal()


@pytest.mark.parametrize("settings", [{"tenant": "a\n"}, {"headers": {"X-Team": "a\r\nX-Other: b"}}])
def test_settings_reject_header_with_line_break(settings: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="must be one line, without a break at its end"):
        PrometheusSettings.model_validate(settings)
