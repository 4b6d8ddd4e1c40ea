"""Cloud identities against servers that check them: a Prometheus that verifies each request, and each cloud's token server."""

import hashlib
import hmac
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from pydantic import ValidationError
from yarl import URL

from trimtab.http_server import serve_application
from trimtab.usage.cloud_identity import (
    CredentialCache,
    Expiring,
    OutgoingRequest,
    build_identity,
    sign_request,
)
from trimtab.usage.errors import SourceRefused, SourceUnavailable, UsageError
from trimtab.usage.prometheus import PrometheusSettings
from trimtab.usage.prometheus.client import PrometheusClient
from trimtab.usage.prometheus.response import TimeGrid
from trimtab.usage.source import query_value, source

KEYS = {"id": "AKIDEXAMPLE", "secret": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "token": "session"}
REGION = "eu-central-1"
PROMQL = 'sum(machine_cpu_cores{node=~"a b|c+d/e:.*"})'
Check = Callable[[web.Request], Awaitable[str]]
CLOUD_VARIABLES = re.compile("^(AWS|AZURE|GCE)_")


@pytest.fixture(autouse=True)
def no_cloud(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if CLOUD_VARIABLES.match(name):
            monkeypatch.delenv(name)


def test_sign_request_matches_the_vector_of_aws() -> None:
    """The case get-vanilla of the test suite for Signature Version 4."""
    found = sign_request(
        OutgoingRequest("GET", URL("https://example.amazonaws.com/")),
        {"id": KEYS["id"], "secret": KEYS["secret"]},
        region="us-east-1",
        service="service",
        at=datetime(2015, 8, 30, 12, 36, tzinfo=UTC),
    )
    assert found["Authorization"].endswith(
        "Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
    )


async def check_signature(request: web.Request) -> str:
    """Verify a signature from the bytes that arrived, by the rules of AWS; empty if it is right."""
    match = re.fullmatch(
        r"AWS4-HMAC-SHA256 Credential=(\w+)/(\d+)/([\w-]+)/aps/aws4_request, SignedHeaders=([\w;-]+), Signature=(\w+)",
        request.headers.get("Authorization", ""),
    )
    if match is None:
        return "no signature"
    key_id, day, region, names, signature = match.groups()
    if (key_id, region) != (KEYS["id"], REGION):
        return f"unknown key {key_id} in {region}"
    if request.headers.get("X-Amz-Security-Token") != KEYS["token"] or "x-amz-security-token" not in names:
        return "no session"
    path, _, query = request.raw_path.partition("?")
    pairs = query.split("&") if query else []
    if pairs != sorted(pairs) or re.search(r"[^A-Za-z0-9_.~%=&-]", query):
        return f"{query} is not canonical"
    lines = [request.method, path, query]
    lines += [f"{name}:{request.headers[name].strip()}" for name in names.split(";")]
    lines += ["", names, hashlib.sha256(await request.read()).hexdigest()]
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    stamp, key = request.headers["X-Amz-Date"], ("AWS4" + KEYS["secret"]).encode()
    for part in (day, region, "aps", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{day}/{region}/aps/aws4_request\n{digest}"
    expected = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    return "" if expected == signature else "wrong signature"


async def check_token(request: web.Request) -> str:
    return "" if request.headers.get("Authorization") == "Bearer cloud-token" else "no token"


@asynccontextmanager
async def serve(answer: Callable[[web.Request], Awaitable[web.Response]]) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with serve_application(app, "127.0.0.1:0") as port:
        yield f"http://127.0.0.1:{port}"


async def query_managed_prometheus(cloud: str, check: Check) -> tuple[float | None, list[str]]:
    """Query a Prometheus that checks every request, and return the value and the methods of the requests."""
    methods = []

    async def answer(request: web.Request) -> web.Response:
        if problem := await check(request):
            return web.json_response({"status": "error", "error": problem}, status=403)
        methods.append(request.method)
        if request.path.endswith("/query_range"):
            series = {"metric": {}, "values": [[1e9, "8"]]}
            return web.json_response(
                {"status": "success", "data": {"resultType": "matrix", "result": [series]}}
            )
        return web.json_response({"status": "success", "data": []})

    async with serve(answer) as url:
        settings: dict[str, Any] = {"url": f"{url}/workspaces/ws-1", "cloud_identity": cloud, "retries": 0}
        settings |= {"aws_region": REGION} if cloud == "aws" else {}
        async with source("prometheus", **settings) as managed:
            client = managed.promql
            assert isinstance(client, PrometheusClient)
            assert await client.label_values("pod", PROMQL, TimeGrid(1e9, 1.0, 1)) == []
            return await query_value(client, PROMQL, at=1e9), methods


async def test_aws_signs_each_request_by_the_role_of_the_account(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """IRSA: the projected token is exchanged at STS, once for all requests."""
    (tmp_path / "token").write_text("projected\n")
    exchanged: list[Mapping[str, object]] = []

    async def sts(request: web.Request) -> web.Response:
        form = dict(await request.post())
        exchanged.append(form)
        if form.get("WebIdentityToken") != "projected" or form.get("RoleArn") != "arn:role":
            return web.Response(status=403)
        keys = {"AccessKeyId": KEYS["id"], "SecretAccessKey": KEYS["secret"], "SessionToken": KEYS["token"]}
        result = {"Credentials": {**keys, "Expiration": 4e9}}
        named = "AssumeRoleWithWebIdentity"
        return web.json_response({f"{named}Response": {f"{named}Result": result}})

    async with serve(sts) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", url)
        monkeypatch.setenv("AWS_ROLE_ARN", "arn:role")
        monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
        value, methods = await query_managed_prometheus("aws", check_signature)
        assert value == 8
        assert {"GET", "POST"} <= set(methods)
        assert len(exchanged) == 1
        monkeypatch.setenv("AWS_ROLE_ARN", "arn:other")
        with pytest.raises(SourceRefused, match="HTTP 403 instead of a credential; check the role"):
            await query_managed_prometheus("aws", check_signature)


async def test_aws_takes_credentials_of_pod_identity(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("projected")

    async def agent(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != "projected":
            return web.Response(status=401)
        keys = {"AccessKeyId": KEYS["id"], "SecretAccessKey": KEYS["secret"], "Token": KEYS["token"]}
        return web.json_response({**keys, "Expiration": "2100-01-01T00:00:00Z"})

    async with serve(agent) as url:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{url}/v1/credentials")
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
        assert (await query_managed_prometheus("aws", check_signature))[0] == 8


async def test_google_sends_the_token_of_the_metadata_server(monkeypatch: pytest.MonkeyPatch) -> None:
    async def metadata(request: web.Request) -> web.Response:
        if request.headers.get("Metadata-Flavor") != "Google":
            return web.Response(status=403)
        assert request.path == "/computeMetadata/v1/instance/service-accounts/default/token"
        return web.json_response({"access_token": "cloud-token", "expires_in": 3600})

    async with serve(metadata) as url:
        monkeypatch.setenv("GCE_METADATA_HOST", url.removeprefix("http://"))
        assert (await query_managed_prometheus("google", check_token))[0] == 8


async def test_azure_exchanges_the_federated_token_once_for_all_requests(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("federated")
    exchanges = 0

    async def entra(request: web.Request) -> web.Response:
        nonlocal exchanges
        exchanges += 1
        form = await request.post()
        assert request.path == "/tenant-1/oauth2/v2.0/token"
        if form.get("client_assertion") != "federated" or form.get("client_id") != "client-1":
            return web.Response(status=401)
        assert form["scope"] == "https://prometheus.monitor.azure.com/.default"
        return web.json_response({"access_token": "cloud-token", "expires_in": 60})

    async with serve(entra) as url:
        for name, text in {
            "AZURE_AUTHORITY_HOST": f"{url}/",
            "AZURE_TENANT_ID": "tenant-1",
            "AZURE_CLIENT_ID": "client-1",
            "AZURE_FEDERATED_TOKEN_FILE": str(tmp_path / "token"),
        }.items():
            monkeypatch.setenv(name, text)
        value, methods = await query_managed_prometheus("azure", check_token)
    assert value == 8
    assert len(methods) > exchanges == 1  # also a token that ends within a minute


class TokenServer:
    """Fetches token after token, which live for some seconds, or fails."""

    def __init__(self, lifetime: float) -> None:
        self.now, self.fetched = 1e9, 0
        self.failure: UsageError | None = None
        self._lifetime = lifetime
        self.cache = CredentialCache(self._fetch, lambda: self.now)

    async def _fetch(self) -> Expiring:
        self.fetched += 1
        if self.failure:
            raise self.failure
        return Expiring({"token": str(self.fetched)}, self.now + self._lifetime)

    async def read_at(self, seconds: float) -> str:
        self.now = 1e9 + seconds
        return (await self.cache.get())["token"]


@pytest.mark.parametrize(("lifetime", "renewed_at"), [(36_000, 35_700), (3600, 3300), (600, 540), (60, 54)])
async def test_credential_is_renewed_shortly_before_its_end(lifetime: float, renewed_at: float) -> None:
    server = TokenServer(lifetime)
    assert [await server.read_at(at) for at in (0, 1, renewed_at - 1, renewed_at)] == ["1", "1", "1", "2"]


@pytest.mark.parametrize("failure", [SourceUnavailable("away"), SourceRefused("no role")])
async def test_credential_serves_to_its_end_while_it_cannot_be_renewed(failure: UsageError) -> None:
    server = TokenServer(3600)
    await server.read_at(0)
    server.failure = failure
    assert [await server.read_at(at) for at in range(3300, 3600)] == ["1"] * 300
    assert server.fetched < 30
    with pytest.raises(type(failure)):
        await server.read_at(3600)
    server.failure = None
    assert int(await server.read_at(3601)) == server.fetched


@pytest.mark.parametrize(
    ("status", "kind"),
    [(408, SourceUnavailable), (429, SourceUnavailable), (503, SourceUnavailable), (403, SourceRefused)],
)
async def test_credential_is_asked_for_again_where_the_server_is_busy(
    status: int, kind: type[UsageError]
) -> None:
    async def metadata(_: web.Request) -> web.Response:
        return web.Response(status=status)

    async with serve(metadata) as url:
        identity = build_identity("google", environ={"GCE_METADATA_HOST": url.removeprefix("http://")})
        with pytest.raises(kind, match=f"HTTP {status} instead of a credential"):
            await identity.build_headers(OutgoingRequest("GET", URL("https://prometheus.example")))


@pytest.mark.parametrize("cloud", ["google", "aws"])
async def test_credentials_of_this_node_never_pass_a_proxy(
    cloud: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    passed = []
    (tmp_path / "token").write_text("projected")

    async def proxy(request: web.Request) -> web.Response:
        passed.append(request.headers)
        return web.Response(status=502)

    async def node(_: web.Request) -> web.Response:
        keys = {"AccessKeyId": KEYS["id"], "SecretAccessKey": KEYS["secret"], "Token": KEYS["token"]}
        return web.json_response({"access_token": "t", "expires_in": 60, **keys, "Expiration": 4e9})

    async with serve(proxy) as proxy_url, serve(node) as url:
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("http_proxy", proxy_url)
        variables = {
            "GCE_METADATA_HOST": url.removeprefix("http://"),
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{url}/v1/credentials",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(tmp_path / "token"),
        }
        identity = build_identity(cloud, region=REGION, environ=variables)
        request = OutgoingRequest("GET", URL("https://prometheus.example"))
        assert "Authorization" in await identity.build_headers(request)
    assert passed == []


@pytest.mark.parametrize(
    ("cloud", "problem"),
    [("aws", "associate a role with its ServiceAccount"), ("azure", "label it and its ServiceAccount")],
)
async def test_cloud_identity_names_the_missing_credentials(cloud: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        await query_managed_prometheus(cloud, check_token)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"token_file": "/t"}, "cloud_identity and token_file or username are both given"),
        ({"cloud_identity": "google", "aws_region": REGION}, "aws_region has no effect"),
    ],
)
def test_settings_reject_contradicting_credentials(settings: dict[str, str], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        PrometheusSettings.model_validate({"url": "https://p", "cloud_identity": "aws", **settings})
