"""The way into a cluster is chosen as kubectl chooses it, and what cannot work is said before anything is sent."""

import asyncio
import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from harness.builders import kubeconfigs
from harness.builders.certificates import Authority, Pair
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
    """Return the error about this user and cluster, after the name of the file."""
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


async def test_load_connection_reads_impersonation_as_headers(folder: Path) -> None:
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


IN_POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "test-ca")


@pytest.fixture(scope="module")
def pair(authority: Authority) -> Pair:
    return authority.issue("alice")


@pytest.fixture
def service_account(tmp_path: Path, authority: Authority) -> Path:
    """A service account's files as a pod has them."""
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text("from-pod")
    (folder / "namespace").write_text("shop\n")
    (folder / "ca.crt").write_bytes(authority.cert.read_bytes())
    return folder


def encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


# Where the way is found


async def test_load_connection_uses_the_service_account_of_a_pod(service_account: Path) -> None:
    way = load_connection(environ=IN_POD, service_account=service_account)
    assert (way.server, way.context, way.namespace) == ("https://10.96.0.1", "in-cluster", "shop")
    assert (await way.get_identity()).headers["Authorization"] == "Bearer from-pod"


def test_load_connection_accepts_port_and_ipv6_of_a_pod(service_account: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    assert (
        load_connection(environ=environ, service_account=service_account).server == "https://[fd00::1]:6443"
    )


def test_load_connection_reads_the_namespace_of_a_pod_from_the_environment(
    service_account: Path,
) -> None:
    environ = {**IN_POD, "POD_NAMESPACE": "here"}
    assert load_connection(environ=environ, service_account=service_account).namespace == "here"
    (service_account / "namespace").unlink()
    assert load_connection(environ=IN_POD, service_account=service_account).namespace == "default"


async def test_load_connection_rereads_rotated_token_and_authority_of_a_pod(
    service_account: Path, tmp_path: Path
) -> None:
    way = load_connection(environ=IN_POD, service_account=service_account)
    before = await way.get_identity()
    assert await way.get_identity() is before
    (service_account / "token").unlink()
    assert await way.get_identity() is before
    (service_account / "token").write_text("rotated")
    rotated = await way.get_identity()
    assert rotated.headers["Authorization"] == "Bearer rotated"
    assert rotated.ssl is before.ssl
    (service_account / "ca.crt").write_bytes(Authority(tmp_path / "next", "next-ca").cert.read_bytes())
    assert (await way.get_identity()).ssl is not before.ssl


def test_load_connection_prefers_a_kubeconfig_to_the_pod(service_account: Path, folder: Path) -> None:
    path = kubeconfigs.write(folder / "config")
    way = load_connection(environ={**IN_POD, "KUBECONFIG": str(path)}, service_account=service_account)
    assert way.context == "here"


def test_load_connection_ignores_a_kubeconfig_without_contexts(service_account: Path, folder: Path) -> None:
    (folder / "config").write_text("apiVersion: v1\nkind: Config\nclusters: []\ncontexts: null\n")
    environ = {**IN_POD, "KUBECONFIG": str(folder / "config")}
    assert load_connection(environ=environ, service_account=service_account).context == "in-cluster"


def test_load_connection_never_replaces_the_requested_file_by_the_pod(
    service_account: Path, folder: Path
) -> None:
    (folder / "config").touch()
    with pytest.raises(ConfigError, match="no current-context; choose one of these contexts: none"):
        load_connection(kubeconfig=folder / "config", environ=IN_POD, service_account=service_account)
    with pytest.raises(ConfigError, match="no context 'prod': no kubeconfig found"):
        load_connection(context="prod", environ=IN_POD, service_account=service_account)


@pytest.mark.parametrize(
    "environ", [{}, {"HOME": "/nonexistent"}, {**IN_POD, "KUBERNETES_SERVICE_PORT": "tcp"}]
)
def test_load_connection_gives_advice_if_nothing_is_found(
    environ: dict[str, str], service_account: Path
) -> None:
    with pytest.raises(
        ConfigError, match=r"no cluster is configured: .* name a kubeconfig, or set KUBECONFIG"
    ):
        load_connection(environ=environ, service_account=service_account)


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        (
            {"certificate-authority": "missing.crt"},
            r"certificate-authority (.*/missing.crt): cannot be read: No such file",
        ),
        (
            {"certificate-authority-data": "***"},
            "certificate-authority-data is not base64; encode the PEM file",
        ),
        (
            {"certificate-authority-data": "anVuaw=="},
            "certificate-authority-data: no PEM certificate can be read",
        ),
        (
            {"certificate-authority-data": "eA==", "certificate-authority": "x"},
            "has both certificate-authority and",
        ),
        (
            {"certificate-authority-data": "eA==", "insecure-skip-tls-verify": True},
            "has both insecure-skip-tls-verify",
        ),
        ({"proxy-url": "socks5://u:hunter2@p"}, "proxy-url: SOCKS proxies are not supported"),
    ],
)
def test_load_connection_names_the_field_of_an_unusable_cluster(
    cluster: dict[str, Any], message: str, folder: Path
) -> None:
    said = complaint(folder, cluster=cluster).replace(str(folder), "...")
    assert said.startswith(f"cluster 'here': {message.replace('.*', '...')}")


# The user


async def test_load_connection_reads_certificates_from_files_or_data(pair: Pair, folder: Path) -> None:
    (folder / "alice.crt").write_bytes(pair.cert.read_bytes())
    (folder / "alice.key").write_bytes(pair.key.read_bytes())
    for user in (
        {"client-certificate": "alice.crt", "client-key": "alice.key"},
        {"client-certificate-data": encoded(pair.cert), "client-key-data": encoded(pair.key)},
    ):
        proof = await connect(folder, user=user).credentials.get_credential()
        assert proof.certificate
        assert proof.certificate.certificate == pair.cert.read_bytes()


# Secrecy


async def test_load_connection_hides_secrets_when_printed(pair: Pair, folder: Path) -> None:
    user = {"username": "alice", "password": "hunter2"}
    user |= {"client-certificate-data": encoded(pair.cert), "client-key-data": encoded(pair.key)}
    way = connect(folder, user=user, cluster={"proxy-url": "http://u:hunter2@proxy"})
    identity = await way.get_identity()
    assert way.proxy_headers
    shown = f"{way!r} {way} {identity!r} {identity.credential!r} {way.credentials!r} {way.trust!r}"
    assert identity.headers["Authorization"].startswith("Basic ")
    for secret in ("hunter2", "Basic ", "PRIVATE KEY", base64.b64encode(b"alice:hunter2").decode()):
        assert secret not in shown


def test_load_connection_leaves_no_file_of_certificate_data(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.setenv(variable, str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    before = open_files()
    connect(
        tmp_path, user={"client-certificate-data": encoded(pair.cert), "client-key-data": encoded(pair.key)}
    )
    assert not list((tmp_path / "tmp").iterdir())
    assert not [name for name in open_files() - before if "trimtab" in name]


def open_files() -> set[str]:
    return {str(link.readlink()) for link in list(Path("/proc/self/fd").iterdir()) if link.exists()}
