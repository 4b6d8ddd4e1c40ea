"""Each way of saying who we are, proven on the real API server by asking it who it thinks we are."""

import base64
import json
import os
import shlex
import subprocess
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from harness.builders import kubeconfigs
from harness.builders.certificates import Authority, Pair
from harness.cluster.cluster import Cluster
from integration.kube.auth.connect_proxy import ConnectProxy
from trimtab.kube.auth.connection import Connection, Identity, load_connection
from trimtab.kube.rest.client import Client

WHO_AM_I = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
ADMIN = "admin"
BY_CERTIFICATE = "admin-by-certificate"


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


class Asker:
    """Asks the API server who we are to it, as a client should use a connection."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def ask(self, way: Connection, identity: Identity | None = None) -> tuple[int, dict[str, Any]]:
        identity = identity or await way.get_identity()
        async with self._session.post(
            way.server + WHO_AM_I,
            json={"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
            headers=identity.headers,
            ssl=identity.ssl,
            proxy=way.proxy,
            proxy_headers=way.proxy_headers,
            server_hostname=way.server_hostname,
        ) as response:
            return response.status, await response.json()

    async def whoami(self, way: Connection) -> dict[str, Any]:
        status, answer = await self.ask(way)
        assert status == 201, answer
        user: dict[str, Any] = answer["status"]["userInfo"]
        return user

    async def name(self, way: Connection) -> str:
        return str((await self.whoami(way))["username"])


@pytest.fixture
def server(session: aiohttp.ClientSession) -> Asker:
    return Asker(session)


class Ways:
    """Writes kubeconfigs for the cluster and loads them."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self._path = folder / "config"

    def as_user(self, user: Mapping[str, Any], **cluster: Any) -> Connection:
        here = {"server": self._cluster.server, "certificate-authority": str(self._cluster.ca)}
        changed = {name.replace("_", "-"): value for name, value in cluster.items()}
        return load_connection(kubeconfig=kubeconfigs.write(self._path, cluster=here | changed, user=user))


@pytest.fixture
def ways(cluster: Cluster, tmp_path: Path) -> Ways:
    return Ways(cluster, tmp_path)


def exec_user(script: Path, version: str) -> dict[str, Any]:
    settings = {"command": str(script), "apiVersion": f"client.authentication.k8s.io/{version}"}
    return {"exec": settings | {"interactiveMode": "Never"}}


def write_plugin(script: Path, *, version: str = "v1", **status: str) -> None:
    answer = {
        "apiVersion": f"client.authentication.k8s.io/{version}",
        "kind": "ExecCredential",
        "status": status,
    }
    script.write_text(f"#!/bin/sh\necho run >> {script}.runs\nprintf %s {shlex.quote(json.dumps(answer))}\n")
    script.chmod(0o755)


def runs(script: Path) -> int:
    return Path(f"{script}.runs").read_text().count("run")


def pem(pair: Pair) -> dict[str, str]:
    return {"clientCertificateData": pair.cert.read_text(), "clientKeyData": pair.key.read_text()}


def encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


async def test_client_authenticates_by_token(cluster: Cluster, server: Asker) -> None:
    user = await server.whoami(load_connection(kubeconfig=cluster.kubeconfig))
    assert user["username"] == ADMIN
    assert "system:masters" in user["groups"]


async def test_client_authenticates_by_certificate_files(cluster: Cluster, ways: Ways, server: Asker) -> None:
    way = ways.as_user(
        {"client-certificate": str(cluster.client_cert), "client-key": str(cluster.client_key)}
    )
    assert await server.name(way) == BY_CERTIFICATE


async def test_client_authenticates_by_certificate_data(cluster: Cluster, ways: Ways, server: Asker) -> None:
    user = {
        "client-certificate-data": encoded(cluster.client_cert),
        "client-key-data": encoded(cluster.client_key),
    }
    way = ways.as_user(user, certificate_authority="", certificate_authority_data=encoded(cluster.ca))
    assert await server.name(way) == BY_CERTIFICATE


async def test_client_without_credentials_is_anonymous(ways: Ways, server: Asker) -> None:
    way = ways.as_user({})
    status, _ = await server.ask(way)
    assert status in {401, 403}
    assert not (await way.get_identity()).headers


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_client_authenticates_by_plugin_token(
    version: str, cluster: Cluster, ways: Ways, server: Asker, tmp_path: Path
) -> None:
    script = tmp_path / "plugin"
    write_plugin(script, version=version, token=cluster.token)
    assert await server.name(ways.as_user(exec_user(script, version))) == ADMIN


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_client_authenticates_by_plugin_certificates_one_after_another(
    version: str, cluster: Cluster, ways: Ways, server: Asker, tmp_path: Path
) -> None:
    script = tmp_path / "plugin"
    write_plugin(script, version=version, **pem(Pair(cluster.client_cert, cluster.client_key)))
    way = ways.as_user(exec_user(script, version))
    assert await server.name(way) == BY_CERTIFICATE
    # The pool still holds a connection that showed the first certificate.
    write_plugin(
        script,
        version=version,
        **pem(cluster.credentials.authority.issue("next-by-certificate", group="system:masters")),
    )
    assert await way.renew(await way.get_identity())
    assert await server.name(way) == "next-by-certificate"


async def test_credentials_renew_a_refused_plugin_token_once(
    cluster: Cluster, ways: Ways, server: Asker, tmp_path: Path
) -> None:
    script = tmp_path / "plugin"
    write_plugin(script, token="not-a-token")
    way = ways.as_user(exec_user(script, "v1"))
    refused = await way.get_identity()
    status, _ = await server.ask(way, refused)
    assert status == 401
    write_plugin(script, token=cluster.token)
    assert await way.renew(refused)
    assert await way.renew(refused)
    assert await server.name(way) == ADMIN
    assert runs(script) == 2


async def test_client_renews_a_refused_token(cluster: Cluster, ways: Ways, tmp_path: Path) -> None:
    script = tmp_path / "plugin"
    write_plugin(script, token="not-a-token")
    way = ways.as_user(exec_user(script, "v1"))
    await way.get_identity()
    write_plugin(script, token=cluster.token)
    async with Client(way) as client:
        assert await client.get_version()
    assert runs(script) == 2


async def test_client_sends_the_rotated_token_of_a_pod(
    cluster: Cluster, namespace: str, server: Asker, tmp_path: Path
) -> None:
    account = tmp_path / "serviceaccount"
    account.mkdir()
    (account / "ca.crt").write_bytes(cluster.ca.read_bytes())
    (account / "namespace").write_text(namespace)
    host, port = cluster.server.removeprefix("https://").split(":")
    environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    seen = []
    way = None
    for name in ("first", "second"):
        cluster.kubectl("create", "serviceaccount", name, "-n", namespace)
        fresh = tmp_path / name
        fresh.write_text(cluster.kubectl("create", "token", name, "-n", namespace, "--duration", "10m"))
        fresh.rename(account / "token")
        way = way or load_connection(environ=environ, service_account=account)
        seen.append(await server.name(way))
    assert seen == [f"system:serviceaccount:{namespace}:{name}" for name in ("first", "second")]
    assert way
    assert way.namespace == namespace


async def test_client_connects_through_a_proxy_with_its_password(cluster: Cluster, ways: Ways) -> None:
    async with ConnectProxy() as proxy, aiohttp.ClientSession() as session:
        way = ways.as_user({"token": cluster.token}, proxy_url=f"http://alice:s%20cret@{proxy.address}")
        assert await Asker(session).name(way) == ADMIN
        assert proxy.targets == [cluster.server.removeprefix("https://")]
        word = base64.b64encode(b"alice:s cret").decode().lower()
        assert proxy.authorizations == [f"basic {word}"]


async def test_client_sends_its_certificate_through_a_proxy(cluster: Cluster, ways: Ways) -> None:
    async with ConnectProxy() as proxy, aiohttp.ClientSession() as session:
        user = {"client-certificate": str(cluster.client_cert), "client-key": str(cluster.client_key)}
        assert await Asker(session).name(ways.as_user(user, proxy_url=proxy.url)) == BY_CERTIFICATE
        assert len(proxy.targets) == 1


async def test_client_verifies_the_expected_server_name(cluster: Cluster, ways: Ways, server: Asker) -> None:
    user = {"token": cluster.token}
    assert await server.name(ways.as_user(user, tls_server_name="localhost")) == ADMIN
    with pytest.raises(aiohttp.ClientConnectorCertificateError, match=r"other\.example"):
        await server.name(ways.as_user(user, tls_server_name="other.example"))


async def test_client_verifies_the_expected_server_name_through_a_proxy(cluster: Cluster, ways: Ways) -> None:
    async with ConnectProxy() as proxy, aiohttp.ClientSession() as session:
        user = {"token": cluster.token}
        assert (
            await Asker(session).name(ways.as_user(user, tls_server_name="localhost", proxy_url=proxy.url))
            == ADMIN
        )
        with pytest.raises(aiohttp.ClientConnectorCertificateError, match=r"other\.example"):
            await Asker(session).name(
                ways.as_user(user, tls_server_name="other.example", proxy_url=proxy.url)
            )


async def test_client_rejects_a_server_of_another_authority_unless_insecure(
    cluster: Cluster, ways: Ways, server: Asker, tmp_path: Path
) -> None:
    user = {"token": cluster.token}
    stranger = Authority(tmp_path / "stranger", "stranger-ca")
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await server.name(ways.as_user(user, certificate_authority=str(stranger.cert)))
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await server.name(ways.as_user(user, certificate_authority=""))
    way = ways.as_user(user, certificate_authority="", insecure_skip_tls_verify=True)
    assert await server.name(way) == ADMIN


async def test_we_can_act_as_somebody_else(cluster: Cluster, ways: Ways, server: Asker) -> None:
    way = ways.as_user(
        {
            "token": cluster.token,
            "as": "bob",
            "as-uid": "7",
            # The last lets bob ask who he is.
            "as-groups": ["dev", "ops", "system:authenticated"],
            "as-user-extra": {"example.org/Reason": ["one", "two"]},
        }
    )
    assert await server.whoami(way) == {
        "username": "bob",
        "uid": "7",
        "groups": ["dev", "ops", "system:authenticated"],
        "extra": {"example.org/reason": ["one", "two"]},
    }


async def test_client_and_kubectl_are_the_same_user_with_the_same_files(
    cluster: Cluster, tmp_path: Path, server: Asker
) -> None:
    """Three files, the context, the cluster and the user each in another, and names that are taken twice."""
    whole = yaml.safe_load(cluster.kubeconfig.read_text())
    decoy = {"name": "admin", "user": {"token": "wrong"}}
    parts = [
        {"contexts": whole["contexts"]},
        {"clusters": whole["clusters"], "current-context": "trimtab"},
        {"users": whole["users"], "current-context": "lost"},
        {"users": [decoy]},
    ]
    for number, part in enumerate(parts):
        (tmp_path / str(number)).write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **part}))
    listed = ":".join(str(tmp_path / name) for name in ("0", "missing", "1", "2", "3"))
    ours = await server.name(load_connection(environ={**os.environ, "KUBECONFIG": listed}))
    assert ours == kubectl_user(cluster, listed) == ADMIN


def kubectl_user(cluster: Cluster, kubeconfig: str) -> str:
    """Return the user of kubectl with these files."""
    kubectl = cluster.directory / "bin" / "kubectl"
    environ = os.environ | cluster.environment | {"KUBECONFIG": kubeconfig}
    done = subprocess.run(
        [kubectl, "auth", "whoami", "-o", "json"], env=environ, capture_output=True, check=True
    )
    return str(json.loads(done.stdout)["status"]["userInfo"]["username"])
