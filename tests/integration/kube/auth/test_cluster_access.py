"""The way into a cluster is chosen as kubectl chooses it, and what cannot work is said before anything is sent."""

import base64
from pathlib import Path
from typing import Any

import pytest

from harness.builders import kubeconfigs
from harness.builders.certificates import Authority, Pair
from kube.auth.test_cluster_access import complaint, connect
from trimtab.kube.auth.connection import load_connection
from trimtab.kube.errors import ConfigError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


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


def test_load_connection_reads_the_namespace_of_a_pod_from_the_environment_or_leaves_it_unknown(
    service_account: Path,
) -> None:
    environ = {**IN_POD, "POD_NAMESPACE": "told"}
    assert load_connection(environ=environ, service_account=service_account).namespace == "told"
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
