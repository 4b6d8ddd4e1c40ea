"""Authenticate to a managed Prometheus by the cloud identity of this pod, from what each cloud gives to its pods.

- AWS signs each request (Signature Version 4) by credentials of the environment, of EKS Pod Identity or of IRSA.
- Google and Azure send a token: from the metadata server, or for a federated token of workload identity.

The variables are those of the clouds' own SDKs; webhooks of EKS and AKS set them.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urlencode

import aiohttp
from yarl import URL

from trimtab.kube.errors import DECODE_ERRORS
from trimtab.usage.errors import SourceRefused, SourceUnavailable, UsageError

Environment = Mapping[str, str]
Clock = Callable[[], float]

AZURE_SCOPE = "https://prometheus.monitor.azure.com/.default"
_AWS_SERVICE = "aps"
_MAX_MARGIN = 300.0
_MARGIN_SHARE = 0.1
"""The part of its lifetime, at most the maximum of seconds, for which a credential is renewed before its end."""
_RETRY_SECONDS = 30.0
"""The seconds between attempts to renew a credential that is still valid."""
_TRANSIENT_STATUSES = {408, 429}
_TIMEOUT = aiohttp.ClientTimeout(total=10)
_SAFE = "-_.~"


@dataclass(frozen=True, slots=True)
class OutgoingRequest:
    """A request before it is sent; the query is part of the URL."""

    method: str
    url: URL
    body: bytes = b""


class CloudIdentity(Protocol):
    """Provides the headers that authenticate a request."""

    async def build_headers(self, request: OutgoingRequest) -> Mapping[str, str]: ...


@dataclass(frozen=True, slots=True)
class Expiring:
    """A credential, and the time at which it ends."""

    value: Mapping[str, str]
    expires_at: float


class CredentialCache:
    """Keeps a credential until shortly before its end, or to its end if it cannot be renewed; concurrent requests fetch it once."""

    def __init__(self, fetch: Callable[[], Awaitable[Expiring]], clock: Clock) -> None:
        self._fetch, self._clock = fetch, clock
        self._current: Expiring | None = None
        self._renew_at = 0.0
        self._lock = asyncio.Lock()

    async def get(self) -> Mapping[str, str]:
        async with self._lock:
            if self._current is None or self._clock() >= self._renew_at:
                self._current = await self._renew(self._current)
            return self._current.value

    async def _renew(self, current: Expiring | None) -> Expiring:
        try:
            renewed = await self._fetch()
        except UsageError:
            now = self._clock()
            if current is None or now >= current.expires_at:
                raise
            # A fetch for each request would delay all of them by its timeout.
            self._renew_at = now + min(_RETRY_SECONDS, (current.expires_at - now) / 2)
            return current
        lifetime = renewed.expires_at - self._clock()
        self._renew_at = renewed.expires_at - min(_MAX_MARGIN, _MARGIN_SHARE * lifetime)
        return renewed


def build_identity(
    name: str, *, region: str | None = None, environ: Environment = os.environ, clock: Clock = time.time
) -> CloudIdentity:
    """Return the identity of a cloud; raise `SourceRefused` if the pod has none."""
    if name == "aws":
        chosen = region or environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
        if not chosen:
            raise SourceRefused("cloud_identity aws: the region is unknown; set aws_region or AWS_REGION")
        return AwsIdentity(chosen, environ, clock)
    fetch = _fetch_google_token if name == "google" else _fetch_azure_token
    return BearerIdentity(CredentialCache(lambda: fetch(environ, clock), clock))


class BearerIdentity:
    """Sends a token that expires."""

    def __init__(self, tokens: CredentialCache) -> None:
        self._tokens = tokens

    async def build_headers(self, request: OutgoingRequest) -> Mapping[str, str]:
        del request
        return {"Authorization": f"Bearer {(await self._tokens.get())['token']}"}


class AwsIdentity:
    """Signs requests to Amazon Managed Service for Prometheus."""

    def __init__(self, region: str, environ: Environment, clock: Clock) -> None:
        self._region, self._clock = region, clock
        self._credentials = CredentialCache(lambda: _fetch_aws_credentials(environ, region, clock), clock)

    async def build_headers(self, request: OutgoingRequest) -> Mapping[str, str]:
        keys = await self._credentials.get()
        at = datetime.fromtimestamp(self._clock(), UTC)
        return sign_request(request, keys, region=self._region, service=_AWS_SERVICE, at=at)


def sign_request(
    request: OutgoingRequest, keys: Mapping[str, str], *, region: str, service: str, at: datetime
) -> dict[str, str]:
    """Return the headers that sign a request by AWS Signature Version 4."""
    stamp, day = at.strftime("%Y%m%dT%H%M%SZ"), at.strftime("%Y%m%d")
    port = "" if request.url.is_default_port() else f":{request.url.port}"
    signed = {"host": f"{request.url.host}{port}", "x-amz-date": stamp}
    if token := keys.get("token"):
        signed["x-amz-security-token"] = token
    names = ";".join(sorted(signed))
    canonical = "\n".join(
        (
            request.method,
            quote(request.url.raw_path, safe=f"/{_SAFE}"),
            encode_query(request.url.query),
            *(f"{name}:{signed[name]}" for name in sorted(signed)),
            "",
            names,
            hashlib.sha256(request.body).hexdigest(),
        )
    )
    scope = f"{day}/{region}/{service}/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = f"AWS4{keys['secret']}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.new(key, text.encode(), "sha256").hexdigest()
    del signed["host"]  # the client sends it itself
    signed["Authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={keys['id']}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return signed


def encode_query(query: Mapping[str, str]) -> str:
    """Encode a query in the only form that a signature covers: sorted, with every reserved character escaped."""
    pairs = sorted((quote(name, safe=_SAFE), quote(value, safe=_SAFE)) for name, value in query.items())
    return "&".join(f"{name}={value}" for name, value in pairs)


async def _fetch_aws_credentials(environ: Environment, region: str, clock: Clock) -> Expiring:
    if key := environ.get("AWS_ACCESS_KEY_ID"):
        found = {"id": key, "secret": environ.get("AWS_SECRET_ACCESS_KEY", "")}
        return Expiring({**found, "token": environ.get("AWS_SESSION_TOKEN", "")}, clock() + 3600)
    if url := environ.get("AWS_CONTAINER_CREDENTIALS_FULL_URI"):
        token = _read_file(environ, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
        answer = await _request("GET", url, headers={"Authorization": token}, is_local=True)
        return _take_aws_keys(answer, "Token")
    if "AWS_WEB_IDENTITY_TOKEN_FILE" in environ:
        url = environ.get("AWS_ENDPOINT_URL_STS") or f"https://sts.{region}.amazonaws.com"
        form = {
            "Action": "AssumeRoleWithWebIdentity",
            "Version": "2011-06-15",
            "RoleArn": environ.get("AWS_ROLE_ARN", ""),
            "RoleSessionName": "trimtab",
            "WebIdentityToken": _read_file(environ, "AWS_WEB_IDENTITY_TOKEN_FILE"),
        }
        answer = await _request("POST", url, form=form, headers={"Accept": "application/json"})
        named = "AssumeRoleWithWebIdentity"
        result = answer.get(f"{named}Response", {}).get(f"{named}Result", {})
        return _take_aws_keys(result.get("Credentials", {}), "SessionToken")
    raise SourceRefused(
        "cloud_identity aws: the pod has no credentials; associate a role with its ServiceAccount "
        "(EKS Pod Identity or IRSA)"
    )


def _take_aws_keys(answer: Mapping[str, Any], token: str) -> Expiring:
    try:
        end = answer["Expiration"]
        expires = datetime.fromisoformat(end).timestamp() if isinstance(end, str) else float(end)
        keys = {"id": answer["AccessKeyId"], "secret": answer["SecretAccessKey"], "token": answer[token]}
    except (KeyError, ValueError, TypeError) as error:
        raise SourceRefused(f"cloud_identity aws: the response has no valid credentials: {error!r}") from None
    return Expiring(keys, expires)


async def _fetch_google_token(environ: Environment, clock: Clock) -> Expiring:
    host = environ.get("GCE_METADATA_HOST", "metadata.google.internal")
    url = f"http://{host}/computeMetadata/v1/instance/service-accounts/default/token"
    answer = await _request("GET", url, headers={"Metadata-Flavor": "Google"}, is_local=True)
    return _take_token(answer, "google", clock)


async def _fetch_azure_token(environ: Environment, clock: Clock) -> Expiring:
    if "AZURE_FEDERATED_TOKEN_FILE" not in environ:
        raise SourceRefused(
            "cloud_identity azure: the pod has no federated token; "
            "label it and its ServiceAccount for Microsoft Entra Workload ID"
        )
    host = environ.get("AZURE_AUTHORITY_HOST", "https://login.microsoftonline.com/").rstrip("/")
    form = {
        "grant_type": "client_credentials",
        "client_id": environ.get("AZURE_CLIENT_ID", ""),
        "scope": AZURE_SCOPE,
        "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        "client_assertion": _read_file(environ, "AZURE_FEDERATED_TOKEN_FILE"),
    }
    url = f"{host}/{environ.get('AZURE_TENANT_ID', '')}/oauth2/v2.0/token"
    return _take_token(await _request("POST", url, form=form), "azure", clock)


def _take_token(answer: Mapping[str, Any], cloud: str, clock: Clock) -> Expiring:
    try:
        return Expiring({"token": str(answer["access_token"])}, clock() + float(answer["expires_in"]))
    except (KeyError, ValueError, TypeError) as error:
        raise SourceRefused(f"cloud_identity {cloud}: the response has no valid token: {error!r}") from None


def _read_file(environ: Environment, variable: str) -> str:
    """Read the token file that a variable names; it is rotated, so it is read for every credential."""
    try:
        return Path(environ[variable]).read_text().strip()
    except (KeyError, OSError) as error:
        raise SourceRefused(f"{variable}: the token cannot be read: {error}") from None


async def _request(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    form: Mapping[str, str] | None = None,
    is_local: bool = False,
) -> dict[str, Any]:
    """Request a credential; never through a proxy from a server that only this node reaches: the proxy would get it."""
    body = urlencode(form).encode() if form else None
    sent = {"Content-Type": "application/x-www-form-urlencoded"} if form else {}
    try:
        async with (
            aiohttp.ClientSession(timeout=_TIMEOUT, trust_env=not is_local) as session,
            session.request(method, url, data=body, headers={**sent, **(headers or {})}) as response,
        ):
            if response.status >= 500 or response.status in _TRANSIENT_STATUSES:
                raise SourceUnavailable(f"{url}: HTTP {response.status} instead of a credential")
            if response.status != 200:
                raise SourceRefused(
                    f"{url}: HTTP {response.status} instead of a credential; check the role of the pod's account"
                )
            answer = await response.json(content_type=None)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise SourceUnavailable(f"{url}: no credential: {error!r}") from None
    except DECODE_ERRORS as error:
        raise SourceRefused(f"{url}: the response is not JSON: {error}") from None
    return answer if isinstance(answer, dict) else {}
