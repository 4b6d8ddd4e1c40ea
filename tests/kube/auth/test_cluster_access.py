"""The way into a cluster is chosen as kubectl chooses it, and what cannot work is said before anything is sent."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from harness.builders import kubeconfigs
from trimtab.kube.auth.connection import Connection, load_connection
from trimtab.kube.errors import ConfigError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def connect(
    folder: Path,
    *,
    user: Mapping[str, Any] | None = None,
    cluster: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Connection:
    path = kubeconfigs.write(folder / "config", user=user, cluster=cluster)
    return load_connection(kubeconfig=path, environ=environ or {})


def complaint(
    folder: Path, *, user: Mapping[str, Any] | None = None, cluster: Mapping[str, Any] | None = None
) -> str:
    """What is said about this user and cluster, after the name of the file."""
    with pytest.raises(ConfigError) as caught:
        connect(folder, user=user, cluster=cluster)
    said = str(caught.value)
    assert "\n" not in said
    assert "hunter2" not in said
    return said.removeprefix(f"{folder / 'config'}: ")


def test_load_connection_selects_a_context_by_name(folder: Path) -> None:
    first, second = (
        kubeconfigs.write(folder / "1", name="one"),
        kubeconfigs.write(folder / "2", name="two", namespace="n"),
    )
    way = load_connection(context="two", environ={"KUBECONFIG": f"{first}:{second}"})
    assert (way.context, way.namespace) == ("two", "n")


# The server


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ("https://api.example:6443", "https://api.example:6443"),
        ("https://api.example/", "https://api.example"),
        ("https://rancher.example/k8s/clusters/c-1/", "https://rancher.example/k8s/clusters/c-1"),
        ("https://[fd00::1]:6443?x=1#y", "https://[fd00::1]:6443"),
    ],
)
def test_load_connection_accepts_server_urls_with_a_path(server: str, expected: str, folder: Path) -> None:
    assert connect(folder, cluster={"server": server}).server == expected


@pytest.mark.parametrize(
    ("server", "message"),
    [
        ("", "must look like https://HOST:PORT"),
        ("api.example:6443", "must look like https://HOST:PORT"),
        ("https://[bad", "not a URL; write https://HOST:PORT"),
        ("https://api.example:http", "not a URL; write https://HOST:PORT"),
        ("https://alice:hunter2@api.example", "must not hold a user or password; that belongs under users"),
    ],
)
def test_load_connection_rejects_a_server_that_is_no_url(server: str, message: str, folder: Path) -> None:
    assert complaint(folder, cluster={"server": server}) == f"cluster 'here': server: {message}"


async def test_credentials_do_not_go_where_there_is_no_tls(folder: Path) -> None:
    way = connect(folder, cluster={"server": "http://127.0.0.1:8001"}, user={"token": "hunter2", "as": "bob"})
    identity = await way.get_identity()
    assert dict(identity.headers) == {"Impersonate-User": "bob"}
    assert identity.ssl is True


def test_load_connection_keeps_server_name_and_proxy_of_the_cluster(folder: Path) -> None:
    way = connect(folder, cluster={"tls-server-name": "api", "proxy-url": "http://proxy:3128"})
    assert (way.server_hostname, way.proxy) == ("api", "http://proxy:3128")
    assert connect(folder, environ={"HTTPS_PROXY": "http://env:1"}).proxy == "http://env:1"


async def test_load_connection_prefers_token_file_to_token(folder: Path) -> None:
    (folder / "token").write_text("fresh")
    way = connect(folder, user={"token": "stale", "tokenFile": "token"})
    assert (await way.get_identity()).headers["Authorization"] == "Bearer fresh"


@pytest.mark.parametrize(
    ("user", "message"),
    [
        (
            {"token": "hunter2", "username": "a", "password": "hunter2"},
            "has both a token and a username or password",
        ),
        ({"client-certificate": "x"}, "has a client-certificate but no client-key or client-key-data"),
        ({"client-certificate": "x", "client-certificate-data": "eA=="}, "has both client-certificate and"),
        (
            {"client-key": "missing", "client-certificate-data": "eA=="},
            "client-key (.../missing): cannot be read",
        ),
        ({"client-key-data": "hunter2!", "client-certificate": "x"}, "client-key-data is not base64"),
        (
            {"client-key-data": "eA==", "client-certificate-data": "eA=="},
            "client-certificate-data: contains no PEM certificate",
        ),
        ({"tokenFile": "missing"}, "tokenFile (.../missing): cannot be read: No such file or directory"),
        ({"token": "hunter2 hunter2"}, "token: must be one line of printable characters"),
        ({"as-groups": ["g"]}, "as-uid, as-groups and as-user-extra need `as`"),
        (
            {"auth-provider": {"name": "gcp", "config": {"access-token": "hunter2"}}},
            "auth-provider: 'gcp' is a legacy",
        ),
    ],
)
def test_load_connection_names_the_field_of_an_unusable_user(
    user: dict[str, Any], message: str, folder: Path
) -> None:
    said = complaint(folder, user=user).replace(str(folder), "...")
    assert said.startswith(f"user 'here': {message}")


@pytest.mark.parametrize(
    ("provider", "instead"),
    [
        ("gcp", "gke-gcloud-auth-plugin"),
        ("azure", "kubelogin"),
        ("oidc", "oidc-login"),
        ("other", "exec plugin"),
    ],
)
def test_load_connection_names_the_replacement_of_a_legacy_provider(
    provider: str, instead: str, folder: Path
) -> None:
    assert instead in complaint(folder, user={"auth-provider": {"name": provider}})


async def test_impersonation_is_headers_some_of_them_repeated(folder: Path) -> None:
    user = {
        "token": "t",
        "as": "bob",
        "as-uid": "7",
        "as-groups": ["dev", "ops"],
        "as-user-extra": {"example.org/Scopes%": ["a", "b"]},
    }
    headers = (await connect(folder, user=user).get_identity()).headers
    assert headers.getall("Impersonate-Group") == ["dev", "ops"]
    assert headers.getall("Impersonate-Extra-example.org%2FScopes%25") == ["a", "b"]
    assert (headers["Impersonate-User"], headers["Impersonate-Uid"]) == ("bob", "7")


async def test_load_connection_hides_the_password_of_a_refusing_proxy(folder: Path) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    proxy = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = proxy.sockets[0].getsockname()[1]
    way = connect(folder, cluster={"proxy-url": f"http://alice:hunter2@127.0.0.1:{port}"})
    async with proxy, aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientHttpProxyError, match="407") as caught:
            await session.get(way.server, proxy=way.proxy, proxy_headers=way.proxy_headers)
    assert "hunter2" not in str(caught.value)
