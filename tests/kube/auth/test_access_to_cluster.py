"""Each way of saying who we are, proven by asking an API server it who it thinks we are."""

import base64
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from harness.builders import kubeconfigs
from harness.builders.certificates import Authority
from harness.cluster.port import ApiServer
from kube.auth.connect_proxy import ConnectProxy
from trimtab.kube.auth.connection import Connection, Identity, load_connection

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

    def __init__(self, cluster: ApiServer, folder: Path) -> None:
        self._cluster = cluster
        self._path = folder / "config"

    def as_user(self, user: Mapping[str, Any], **cluster: Any) -> Connection:
        here = {"server": self._cluster.server, "certificate-authority": str(self._cluster.ca)}
        changed = {name.replace("_", "-"): value for name, value in cluster.items()}
        return load_connection(kubeconfig=kubeconfigs.write(self._path, cluster=here | changed, user=user))


@pytest.fixture
def ways(cluster: ApiServer, tmp_path: Path) -> Ways:
    return Ways(cluster, tmp_path)


def encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


async def test_client_authenticates_by_token(cluster: ApiServer, server: Asker) -> None:
    user = await server.whoami(load_connection(kubeconfig=cluster.kubeconfig))
    assert user["username"] == ADMIN
    assert "system:masters" in user["groups"]


async def test_client_authenticates_by_certificate_files(
    cluster: ApiServer, ways: Ways, server: Asker
) -> None:
    way = ways.as_user(
        {"client-certificate": str(cluster.client_cert), "client-key": str(cluster.client_key)}
    )
    assert await server.name(way) == BY_CERTIFICATE


async def test_client_authenticates_by_certificate_data(
    cluster: ApiServer, ways: Ways, server: Asker
) -> None:
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


async def test_client_sends_the_rotated_token_of_a_pod(
    cluster: ApiServer, namespace: str, server: Asker, tmp_path: Path
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
        account_of = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        cluster.call("POST", account_of, {"metadata": {"name": name}})
        asked = cluster.call("POST", f"{account_of}/{name}/token", {"spec": {"expirationSeconds": 600}})
        fresh = tmp_path / name
        fresh.write_text(asked["status"]["token"])
        fresh.rename(account / "token")
        way = way or load_connection(environ=environ, service_account=account)
        seen.append(await server.name(way))
    assert seen == [f"system:serviceaccount:{namespace}:{name}" for name in ("first", "second")]
    assert way
    assert way.namespace == namespace


async def test_client_connects_through_a_proxy_with_its_password(cluster: ApiServer, ways: Ways) -> None:
    async with ConnectProxy() as proxy, aiohttp.ClientSession() as session:
        way = ways.as_user({"token": cluster.token}, proxy_url=f"http://alice:s%20cret@{proxy.address}")
        assert await Asker(session).name(way) == ADMIN
        assert proxy.targets == [cluster.server.removeprefix("https://")]
        word = base64.b64encode(b"alice:s cret").decode().lower()
        assert proxy.authorizations == [f"basic {word}"]


async def test_client_sends_its_certificate_through_a_proxy(cluster: ApiServer, ways: Ways) -> None:
    async with ConnectProxy() as proxy, aiohttp.ClientSession() as session:
        user = {"client-certificate": str(cluster.client_cert), "client-key": str(cluster.client_key)}
        assert await Asker(session).name(ways.as_user(user, proxy_url=proxy.url)) == BY_CERTIFICATE
        assert len(proxy.targets) == 1


async def test_client_verifies_the_expected_server_name(
    cluster: ApiServer, ways: Ways, server: Asker
) -> None:
    user = {"token": cluster.token}
    assert await server.name(ways.as_user(user, tls_server_name="localhost")) == ADMIN
    with pytest.raises(aiohttp.ClientConnectorCertificateError, match=r"other\.example"):
        await server.name(ways.as_user(user, tls_server_name="other.example"))


async def test_client_verifies_the_expected_server_name_through_a_proxy(
    cluster: ApiServer, ways: Ways
) -> None:
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
    cluster: ApiServer, ways: Ways, server: Asker, tmp_path: Path
) -> None:
    user = {"token": cluster.token}
    stranger = Authority(tmp_path / "stranger", "stranger-ca")
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await server.name(ways.as_user(user, certificate_authority=str(stranger.cert)))
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await server.name(ways.as_user(user, certificate_authority=""))
    way = ways.as_user(user, certificate_authority="", insecure_skip_tls_verify=True)
    assert await server.name(way) == ADMIN


async def test_we_can_act_as_somebody_else(cluster: ApiServer, ways: Ways, server: Asker) -> None:
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
