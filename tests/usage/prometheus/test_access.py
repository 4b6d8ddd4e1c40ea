"""Test TLS, password and proxy authentication against a real Prometheus."""

from pathlib import Path

import pytest
from aiohttp import web
from pydantic import ValidationError

from harness import UnavailableError
from harness.certificates import LOOPBACK, Authority
from harness.prometheus import Recorded
from trimtab.kube.auth.credentials import format_basic_authorization
from trimtab.kube.auth.redacted import RedactedText
from trimtab.operator.http_server import serve_application
from trimtab.usage.errors import SourceRefused
from trimtab.usage.prometheus import Prometheus, PrometheusSettings
from trimtab.usage.prometheus.endpoint import find_endpoints
from trimtab.usage.source import UsageQuery
from usage.recording import T0, Recording, container_labels

QUERY = UsageQuery(start=T0, end=T0 + 600, step=60)
HASH_OF_TEST = "$2b$12$hNf2lSsxfm0.i4a.1kVpSOVyBCfIB51VRjgBUyv6kdnyTlgWj81Ay"


async def test_prometheus_authenticates_with_mutual_tls_and_password(tmp_path: Path) -> None:
    try:
        authority, other = Authority(tmp_path / "ca", "ca"), Authority(tmp_path / "other", "other")
    except UnavailableError as why:
        pytest.skip(str(why))
    own, ours = authority.issue("server", hosts=LOOPBACK), authority.issue("trimtab")
    web = {
        "tls_server_config": {
            "cert_file": str(own.cert),
            "key_file": str(own.key),
            "client_auth_type": "RequireAndVerifyClientCert",
            "client_ca_file": str(authority.cert),
        },
        "basic_auth_users": {"admin": HASH_OF_TEST},
    }
    recording = Recording()
    recording.container(container_labels("web"), cores=0.5, memory=1e8)
    password, wrong = tmp_path / "password", tmp_path / "wrong"
    password.write_text("test\n")
    wrong.write_text("guess\n")
    settings = PrometheusSettings(
        username="admin",
        password_file=password,
        ca_file=authority.cert,
        cert_file=ours.cert,
        key_file=ours.key,
        retries=0,
    )
    try:
        recorded = Recorded(tmp_path, recording.text, web=web)
    except UnavailableError as why:
        pytest.skip(str(why))
    with recorded as server:
        here = settings.model_copy(update={"url": server.url})
        async with Prometheus(here) as prometheus:
            assert (await prometheus.read(QUERY)).sample_count > 5
        blind = {"ca_file": None, "insecure": True}
        async with Prometheus(here.model_copy(update=blind)) as prometheus:
            assert (await prometheus.read(QUERY)).sample_count > 5
        for change, line in (
            ({"password_file": wrong}, "401 .*check token_file, username"),
            ({"ca_file": other.cert}, "certificate is not trusted"),
            ({"ca_file": tmp_path / "none"}, "ca_file .* cannot be read"),
        ):
            async with Prometheus(here.model_copy(update=change)) as prometheus:
                with pytest.raises(SourceRefused, match=line):
                    await prometheus.read(QUERY)


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
