"""Login and permissions of the dashboard, on the snapshot of a simulated operator."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import aiohttp
import msgspec
import pytest
from yarl import URL

from harness.builders.ip_families import AT_EITHER_HOST
from trimtab.errors import TrimtabError
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.store.errors import UnavailableError
from trimtab.web.app import build_app
from trimtab.web.auth import LocalAccess
from trimtab.web.backends.snapshot import SnapshotBackend
from trimtab.web.model import HistoryEntry, WorkloadAction, WorkloadDetail
from trimtab.web.server import DashboardCertificate, serve_dashboard
from web.scene import scene

SCENE = scene(60)
ROW = next(row for row in SCENE.workloads if row.kind == "Deployment")
ACT = f"/workloads/{ROW.namespace}/{ROW.kind}/{ROW.name}/hold"


class Willing(SnapshotBackend):
    """A backend that lets anybody act and records who did."""

    def __init__(self) -> None:
        super().__init__(SCENE)
        self.read_only_reason = ""
        self.acts: list[str] = []

    async def workload(self, key: WorkloadKey, *, wait: bool = True) -> WorkloadDetail | None:
        found = await super().workload(key, wait=wait)
        return msgspec.structs.replace(found, acts={WorkloadAction.HOLD: ""}) if found else None

    async def run_action(self, act: object, key: object, *, who: str, why: str) -> str:
        self.acts.append(f"{act} {key} {who} {why}")
        return "done"


@pytest.fixture
def board() -> Willing:
    return Willing()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as found:
        yield found


async def csrf(session: aiohttp.ClientSession, url: str) -> str:
    async with session.get(url) as answer:
        found = re.search(r'"X-CSRF-Token": "([^"]+)"', (await answer.text()).replace("&#34;", '"'))
    assert found
    return found[1]


async def test_action_requires_session_and_csrf_token(board: Willing, session: aiohttp.ClientSession) -> None:
    async with serve_dashboard(build_app(board, LocalAccess()), "127.0.0.1:0") as url:
        async with session.post(url + ACT) as answer:
            assert answer.status == 401
        secret = await csrf(session, url)
        for headers in (
            {},
            {"X-CSRF-Token": "guessed"},
            {"X-CSRF-Token": secret, "Sec-Fetch-Site": "cross-site"},
        ):
            async with session.post(url + ACT, headers=headers) as answer:
                assert answer.status == 403
                assert "reload the page" in await answer.text()
        assert board.acts == []
        async with session.post(
            url + ACT, headers={"X-CSRF-Token": secret}, data={"why": "the sale"}
        ) as answer:
            assert answer.status == 200
        assert board.acts == [f"hold {ROW.key} the local user the sale"]


async def test_auth_sends_security_headers_with_each_response(session: aiohttp.ClientSession) -> None:
    async with serve_dashboard(build_app(SnapshotBackend(SCENE), LocalAccess()), "127.0.0.1:0") as url:
        for path in ("/", "/static/trimtab.js", "/nowhere", "/snapshot.json"):
            async with session.get(url + path) as answer:
                policy = answer.headers["Content-Security-Policy"]
                assert "default-src 'none'; script-src 'self'" in policy
                assert "unsafe" not in policy
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
        async with session.get(url) as answer:
            assert "no-store" in answer.headers["Cache-Control"]
        async with aiohttp.ClientSession() as newcomer, newcomer.get(url) as answer:
            cookie = answer.headers["Set-Cookie"]
            assert "HttpOnly" in cookie
            assert "SameSite=strict" in cookie


async def test_server_rejects_foreign_host_names(session: aiohttp.ClientSession) -> None:
    async with (
        serve_dashboard(build_app(SnapshotBackend(SCENE), LocalAccess()), "127.0.0.1:0") as url,
        session.get(url, headers={"Host": "evil.example"}) as answer,
    ):
        assert answer.status == 400


async def test_snapshot_rejects_actions(session: aiohttp.ClientSession) -> None:
    async with serve_dashboard(build_app(SnapshotBackend(SCENE), LocalAccess()), "127.0.0.1:0") as url:
        secret = await csrf(session, url)
        async with session.post(url + ACT, headers={"X-CSRF-Token": secret}) as answer:
            assert answer.status == 403
            assert "which is read-only" in await answer.text()


async def test_missing_page_returns_a_one_line_error(session: aiohttp.ClientSession) -> None:
    async with (
        serve_dashboard(build_app(SnapshotBackend(SCENE), LocalAccess()), "127.0.0.1:0") as url,
        session.get(f"{url}/workloads/shop/Deployment/gone") as answer,
    ):
        assert answer.status == 404
        assert await answer.text() == "Deployment shop/gone: this workload does not exist"


async def test_workload_with_two_risks_counts_once(session: aiohttp.ClientSession) -> None:
    row = msgspec.structs.replace(ROW, risks=("OOM", "throttling"))
    overview = msgspec.structs.replace(SCENE.overview, risks={"OOM": 1, "throttling": 1})
    board = SnapshotBackend(msgspec.structs.replace(SCENE, workloads=(row,), overview=overview))
    async with (
        serve_dashboard(build_app(board, LocalAccess()), "127.0.0.1:0") as url,
        session.get(url) as answer,
    ):
        text = await answer.text()
    assert '<dt>At risk</dt><dd class="bad-text">1</dd>' in text
    assert "1 of OOM, 1 of throttling" in text


async def test_invalid_page_of_workloads_shows_the_first(session: aiohttp.ClientSession) -> None:
    async with serve_dashboard(build_app(SnapshotBackend(SCENE), LocalAccess()), "127.0.0.1:0") as url:
        for page in ("0", "-1", "9" * 5000):
            async with session.get(f"{url}/parts/workloads?page={page}") as answer:
                assert answer.status == 200
                assert 'id="page-number" value="1"' in await answer.text()


async def test_auth_keeps_sessions_of_two_dashboards_on_one_host_apart(
    board: Willing, session: aiohttp.ClientSession
) -> None:
    """Browsers keep the cookies of all ports of a host together."""
    async with (
        serve_dashboard(build_app(board, LocalAccess()), "127.0.0.1:0") as one,
        serve_dashboard(build_app(SnapshotBackend(SCENE), LocalAccess()), "127.0.0.1:0") as other,
    ):
        secret = await csrf(session, one)
        await csrf(session, other)
        async with session.post(one + ACT, headers={"X-CSRF-Token": secret}) as answer:
            assert answer.status == 200


class Failing(SnapshotBackend):
    def __init__(self, failure: Exception) -> None:
        super().__init__(SCENE)
        self.failure = failure

    async def history(self, **_: object) -> Sequence[HistoryEntry]:
        raise self.failure


@pytest.mark.parametrize(
    ("failure", "status", "said"),
    [
        (UnavailableError("store.url: no answer"), 503, "store.url: no answer"),
        (
            RuntimeError("a secret"),
            500,
            "the dashboard failed to render this page; see its log for the cause",
        ),
    ],
)
async def test_error_pages_have_security_headers(
    failure: Exception, status: int, said: str, session: aiohttp.ClientSession
) -> None:
    async with (
        serve_dashboard(build_app(Failing(failure), LocalAccess()), "127.0.0.1:0") as url,
        session.get(f"{url}/history") as answer,
    ):
        assert answer.status == status
        assert await answer.text() == said
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert answer.headers["Cache-Control"] == "no-store"


@AT_EITHER_HOST
async def test_server_without_host_listens_on_ipv4_and_ipv6(
    session: aiohttp.ClientSession, host: str
) -> None:
    async with (
        serve_dashboard(build_app(SnapshotBackend(SCENE), LocalAccess()), ":0") as url,
        session.get(URL(url).with_host(host)) as answer,
    ):
        assert answer.status == 200


async def test_missing_certificate_error_names_the_file(tmp_path: Path) -> None:
    lost = DashboardCertificate(tmp_path / "tls.crt", tmp_path / "tls.key")
    with pytest.raises(TrimtabError, match=r"tls\.crt: No such file"):
        async with serve_dashboard(
            build_app(SnapshotBackend(SCENE), LocalAccess()), "127.0.0.1:0", certificate=lost
        ):
            pass
