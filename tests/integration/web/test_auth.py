"""Permissions of the dashboard by the RBAC of a real API server, over a simulated operator."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest
import yaml

from harness import UnavailableError as NoOpenssl
from harness.builders.certificates import LOOPBACK, Authority
from harness.builders.objects import rollout_kind
from harness.cluster.cluster import Cluster
from trimtab.kube.auth import load_connection
from trimtab.kube.errors import Forbidden, NotFound
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.rbac import RBAC_RULES, RbacRule, find_missing_rules
from trimtab.kube.rest.resources import NODE_METRICS
from trimtab.web.app import build_app
from trimtab.web.auth import AccessDenied, ClusterAccess, LocalAccess, Viewer
from trimtab.web.backends.backend import DashboardBackend
from trimtab.web.backends.snapshot import SnapshotBackend
from trimtab.web.server import DashboardCertificate, serve_dashboard
from web.test_auth import ACT, ROW, SCENE, Willing, csrf


@pytest.fixture
def board() -> Willing:
    return Willing()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as found:
        yield found


UNDONE = {str(each.id) for each in SCENE.history[:50] if each.undo and each.kind == "Deployment"}
"""Return the revert actions offered to a user who may patch only Deployments."""


# By a real API server


@pytest.fixture
async def admin(cluster: Cluster) -> AsyncIterator[Client]:
    async with Client(load_connection(kubeconfig=cluster.kubeconfig)) as client:
        yield client


def account(cluster: Cluster, namespace: str, name: str, *roles: str) -> str:
    """Create a service account with cluster roles, and its token."""
    cluster.call("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})
    for role in roles:
        cluster.call(
            "POST",
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            {
                "metadata": {"name": f"{namespace}-{name}-{role}"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
            },
        )
    asked = {"spec": {"expirationSeconds": 3600}}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    token: str = cluster.call("POST", path, asked)["status"]["token"]
    return token


@pytest.fixture(scope="module")
def roles(cluster: Cluster) -> None:
    rules = {
        "dashboard-look": [
            {"apiGroups": ["trimtab.io"], "resources": ["optimizationpolicies"], "verbs": ["get"]}
        ],
        "dashboard-act": [{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["patch"]}],
    }
    for name, said in rules.items():
        body = {"metadata": {"name": name}, "rules": said}
        cluster.call("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", body)


async def test_rbac_decides_who_may_view_and_change(
    cluster: Cluster, namespace: str, roles: None, admin: Client, board: Willing
) -> None:
    nobody = account(cluster, namespace, "nobody")
    viewer = account(cluster, namespace, "viewer", "dashboard-look")
    actor = account(cluster, namespace, "actor", "dashboard-look", "dashboard-act")
    access = ClusterAccess(admin)
    unknown, stranger = await access.authenticate("made.up.token"), await access.authenticate(nobody)
    assert isinstance(unknown, AccessDenied)
    assert "rejected this token" in unknown.reason
    assert isinstance(stranger, AccessDenied)
    assert "may not get optimizationpolicies" in stranger.reason
    for token, may in ((viewer, False), (actor, True)):
        entered = await access.authenticate(token)
        assert isinstance(entered, Viewer)
        assert await access.may_act(entered, ROW.key) is may
        await _try(board, access, token, may=may)
    assert [act.split()[-1] for act in board.acts] == [f"system:serviceaccount:{namespace}:actor"]


@pytest.fixture
def group(cluster: Cluster, namespace: str) -> Iterator[str]:
    """A kind Rollout that exists for the duration of a test."""
    group, definitions = f"{namespace}.example.com", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    cluster.call("POST", definitions, rollout_kind(group))
    yield group
    cluster.call("DELETE", f"{definitions}/rollouts.{group}")


async def test_rbac_decides_who_may_act_on_custom_kinds(
    cluster: Cluster, namespace: str, group: str, admin: Client
) -> None:
    role = {"apiGroups": [group], "resources": ["rollouts"], "verbs": ["patch"]}
    cluster.call(
        "POST",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        {"metadata": {"name": f"{namespace}-rolls"}, "rules": [role]},
    )
    account(cluster, namespace, "roller", f"{namespace}-rolls")
    roller = Viewer(f"system:serviceaccount:{namespace}:roller")
    web = WorkloadKey(f"Rollout.{group}", namespace, "web")
    async with asyncio.timeout(60):  # until it is served, and the role heard of
        while not await ClusterAccess(admin).may_act(roller, web):
            await asyncio.sleep(0.1)
    access = ClusterAccess(admin)
    assert not await access.may_act(Viewer("somebody"), web)
    assert not await access.may_act(roller, WorkloadKey("Rollout.example.org", namespace, "web"))
    assert not await access.may_act(roller, ROW.key)


async def _try(board: DashboardBackend, access: ClusterAccess, token: str, *, may: bool) -> None:
    async with (
        serve_dashboard(build_app(board, access), "127.0.0.1:0") as url,
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session,
    ):
        async with session.get(url) as answer:
            assert answer.url.path == "/login"
        async with session.post(f"{url}/login", data={"token": "nonsense"}) as answer:
            assert answer.status == 403
        async with session.post(f"{url}/login", data={"token": token}) as answer:
            assert answer.url.path == "/"
        headers = {"X-CSRF-Token": await csrf(session, url)}
        async with session.get(url + ACT.removesuffix("/hold")) as answer:
            assert ("Hold it" in await answer.text()) is may
        async with session.get(f"{url}/history") as answer:
            assert set(re.findall(r"/history/(\d+)/undo", await answer.text())) == (UNDONE if may else set())
        async with session.post(url + ACT, headers=headers) as answer:
            assert answer.status == (200 if may else 403)
            assert may or "RBAC grants read access only" in await answer.text()


async def test_unreachable_api_server_rejects_logins(cluster: Cluster, tmp_path: Path) -> None:
    away = tmp_path / "away"
    away.write_text(cluster.kubeconfig.read_text().replace(str(cluster.server.rpartition(":")[2]), "1"))
    async with Client(load_connection(kubeconfig=away)) as client:
        found = await ClusterAccess(client).authenticate("token")
    assert isinstance(found, AccessDenied)


@pytest.mark.parametrize("left_out", [None, *RBAC_RULES["dashboard"]], ids=str)
async def test_dashboard_needs_exactly_its_rights(
    cluster: Cluster, namespace: str, roles: None, tmp_path: Path, left_out: RbacRule | None
) -> None:
    rights = [right for right in RBAC_RULES["dashboard"] if right is not left_out]
    rules = [
        {"apiGroups": [each.group], "resources": [each.resource], "verbs": [*each.verbs]} for each in rights
    ]
    role = {"metadata": {"name": f"{namespace}-own"}, "rules": rules}
    cluster.call("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", role)
    account(cluster, namespace, "own", f"{namespace}-own")
    token = account(cluster, namespace, "actor", "dashboard-look", "dashboard-act")
    kubeconfig = yaml.safe_load(cluster.kubeconfig.read_text())
    kubeconfig["users"][0]["user"]["as"] = f"system:serviceaccount:{namespace}:own"
    (tmp_path / "own").write_text(yaml.safe_dump(kubeconfig))
    async with Client(load_connection(kubeconfig=tmp_path / "own")) as client:
        access = ClusterAccess(client)

        async def whole() -> bool:
            entered = await access.authenticate(token)
            return (
                isinstance(entered, Viewer)
                and await access.may_act(entered, ROW.key)
                and await _sees_nodes(client)
            )

        # The server hears of roles a little later than it answers for them; of one that is left out it never does.
        async with asyncio.timeout(60):
            while await find_missing_rules(client, rights) or (left_out is None and not await whole()):
                await asyncio.sleep(0.05)
        assert await whole() is (left_out is None)


async def _sees_nodes(client: Client) -> bool:
    try:
        async for _ in client.list_pages(NODE_METRICS):
            return True
    except Forbidden:
        return False
    except NotFound:
        return True  # it may ask; that there is no such kind is another matter
    return True


async def test_renewed_certificate_is_served_to_new_connections(tmp_path: Path) -> None:
    try:
        authority = Authority(tmp_path, "ca")
    except NoOpenssl as why:
        pytest.skip(str(why))
    old, new = (authority.issue(name, hosts=LOOPBACK) for name in ("old", "new"))
    shown = DashboardCertificate(tmp_path / "tls.crt", tmp_path / "tls.key")

    def put(cert: Path, key: Path) -> None:
        shown.certificate.write_bytes(cert.read_bytes())
        shown.key.write_bytes(key.read_bytes())

    async def served() -> str:
        host, port = url.removeprefix("https://").split(":")
        return await asyncio.to_thread(ssl.get_server_certificate, (host, int(port)))

    put(old.cert, old.key)
    pages = build_app(SnapshotBackend(SCENE), LocalAccess(), secure=True)
    async with serve_dashboard(pages, "127.0.0.1:0", certificate=shown, reload_seconds=0.02) as url:
        assert await served() == old.cert.read_text()
        put(new.cert, old.key)  # half of it is there
        await asyncio.sleep(0.1)
        assert await served() == old.cert.read_text()
        put(new.cert, new.key)
        async with asyncio.timeout(60):
            while await served() != new.cert.read_text():
                await asyncio.sleep(0.02)
