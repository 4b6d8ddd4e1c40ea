"""Attacks on the dashboard: lost rights, streams after logout, floods of logins and streams, other users of the machine."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from store.builders import entry
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.store import Store
from trimtab.web import sessions
from trimtab.web.app import build_app
from trimtab.web.auth import AccessDenied, LocalAccess, OneTimeLinks, Viewer
from trimtab.web.backends.live import LiveBackend
from trimtab.web.backends.snapshot import SnapshotBackend
from trimtab.web.server import serve_dashboard
from web.scene import scene

SCENE = scene(5)
TOKEN = "right"


class ScriptedAccess:
    """Knows one token; `views` is the answer to a review of rights, None if the cluster does not answer."""

    requires_token = True

    def __init__(self) -> None:
        self.views: bool | None = True
        self.reviews = 0

    async def authenticate(self, token: str) -> Viewer | AccessDenied:
        self.reviews += 1
        return Viewer("ann") if token == TOKEN else AccessDenied("the cluster rejected this token")

    async def may_view(self, viewer: Viewer) -> bool | None:
        assert viewer.name == "ann"
        return self.views

    async def may_act(self, viewer: Viewer, key: WorkloadKey) -> bool:
        return False


@pytest.fixture
async def browser() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as found:
        yield found


async def log_in(browser: aiohttp.ClientSession, url: str, token: str = TOKEN) -> int:
    async with browser.post(f"{url}/login", data={"token": token}, allow_redirects=False) as answer:
        return answer.status


async def visit(browser: aiohttp.ClientSession, url: str) -> int:
    async with browser.get(url, allow_redirects=False) as answer:
        return answer.status


async def read_to_end(stream: aiohttp.ClientResponse) -> None:
    async with asyncio.timeout(10):
        while await stream.content.readany():
            pass


@pytest.mark.parametrize(("answer", "seconds"), [(False, 180.0), (None, 900.0)])
async def test_viewer_who_lost_the_right_to_view_is_logged_out(
    answer: Any, seconds: float, browser: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = ScriptedAccess()
    async with serve_dashboard(build_app(SnapshotBackend(SCENE), access), "127.0.0.1:0") as url:
        assert await log_in(browser, url) == 303
        assert await visit(browser, url) == 200
        async with browser.get(f"{url}/changes") as stream:
            await stream.content.readuntil(b"\n\n")
            access.views = answer
            assert await visit(browser, url) == 200, "it is not asked for every request"
            monkeypatch.setattr(sessions, "RECHECK_SECONDS", 180.0 - seconds)
            monkeypatch.setattr(sessions, "MAX_UNVERIFIED_SECONDS", 900.0 - seconds)
            assert await visit(browser, url) == 303
            await read_to_end(stream)
        access.views = True
        assert await visit(browser, url) == 303, "a session that ended stays ended"


async def test_session_goes_on_while_the_api_server_is_away_for_minutes(
    browser: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = ScriptedAccess()
    async with serve_dashboard(build_app(SnapshotBackend(SCENE), access), "127.0.0.1:0") as url:
        assert await log_in(browser, url) == 303
        access.views = None
        monkeypatch.setattr(sessions, "RECHECK_SECONDS", 0.0)
        assert await visit(browser, url) == 200


async def test_streams_end_at_logout(browser: aiohttp.ClientSession) -> None:
    async with serve_dashboard(build_app(SnapshotBackend(SCENE), ScriptedAccess()), "127.0.0.1:0") as url:
        assert await log_in(browser, url) == 303
        async with browser.get(url) as page:
            csrf = re.search(r'"X-CSRF-Token": "([^"]+)"', (await page.text()).replace("&#34;", '"'))
        assert csrf
        async with browser.get(f"{url}/changes") as stream:
            await stream.content.readuntil(b"\n\n")
            async with browser.post(f"{url}/logout", headers={"X-CSRF-Token": csrf[1]}) as answer:
                assert answer.status == 200
            await read_to_end(stream)


async def read_csrf(browser: aiohttp.ClientSession, url: str) -> str:
    async with browser.get(url) as page:
        found = re.search(r'"X-CSRF-Token": "([^"]+)"', (await page.text()).replace("&#34;", '"'))
    assert found
    return found[1]


async def act(browser: aiohttp.ClientSession, url: str, csrf: str, **headers: str) -> int:
    row = SCENE.workloads[0]
    path = f"/workloads/{row.key.namespace}/{row.key.kind}/{row.key.name}/hold"
    async with browser.post(url + path, headers={"X-CSRF-Token": csrf, **headers}) as answer:
        return answer.status


async def test_cookie_and_csrf_token_of_an_ended_session_open_nothing(browser: aiohttp.ClientSession) -> None:
    async with serve_dashboard(build_app(SnapshotBackend(SCENE), ScriptedAccess()), "127.0.0.1:0") as url:
        assert await log_in(browser, url) == 303
        csrf = await read_csrf(browser, url)
        stolen = {each.key: each.value for each in browser.cookie_jar}
        async with aiohttp.ClientSession(cookies=stolen, cookie_jar=aiohttp.CookieJar(unsafe=True)) as thief:
            assert await visit(thief, url) == 200
            async with browser.post(f"{url}/logout", headers={"X-CSRF-Token": csrf}) as answer:
                assert answer.status == 200
            assert [await visit(thief, url + path) for path in ("/", "/changes", "/snapshot.json")] == [
                303
            ] * 3
            assert await act(thief, url, csrf) == 401


class WithdrawnRight(ScriptedAccess):
    """Permits actions until the right is withdrawn."""

    acts = True

    async def may_act(self, viewer: Viewer, key: WorkloadKey) -> bool:
        return self.acts


async def test_action_is_reviewed_again_although_the_page_still_has_its_button(
    browser: aiohttp.ClientSession,
) -> None:
    access = WithdrawnRight()
    async with serve_dashboard(build_app(_Writable(), access), "127.0.0.1:0") as url:
        assert await log_in(browser, url) == 303
        csrf = await read_csrf(browser, url)
        assert await act(browser, url, csrf) == 200
        access.acts = False
        assert await act(browser, url, csrf) == 403


class _Writable(SnapshotBackend):
    """Runs every action."""

    def __init__(self) -> None:
        super().__init__(SCENE)
        self.read_only_reason = ""

    async def run_action(self, *_: Any, **__: Any) -> str:
        return "done"


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "", "Origin": "https://evil.example"},
    ],
)
async def test_other_sites_can_neither_log_a_viewer_in_nor_act(
    headers: dict[str, str], browser: aiohttp.ClientSession
) -> None:
    async with serve_dashboard(build_app(_Writable(), WithdrawnRight()), "127.0.0.1:0") as url:
        async with browser.post(
            f"{url}/login", data={"token": TOKEN}, headers=headers, allow_redirects=False
        ) as answer:
            assert answer.status == 403
        assert await log_in(browser, url) == 303
        csrf = await read_csrf(browser, url)
        assert await act(browser, url, csrf, **headers) == 403
        assert await act(browser, url, csrf, Origin=url) == 200
        assert await act(browser, url, csrf, **{"Sec-Fetch-Site": "same-origin", "Origin": "null"}) == 200


@pytest.mark.parametrize(
    ("origin", "host", "status"),
    [
        ("https://127.0.0.1", "127.0.0.1", 303),
        ("https://127.0.0.1", "127.0.0.1:443", 303),
        ("http://127.0.0.1", "127.0.0.1:80", 303),
        ("http://127.0.0.1:80", "127.0.0.1", 303),
        ("http://[::1]", "[::1]:80", 303),
        ("http://127.0.0.1", "127.0.0.1:443", 403),
        ("https://127.0.0.1", "127.0.0.1:80", 403),
        ("http://127.0.0.1:8080", "127.0.0.1:80", 403),
        ("https://dashboard.example", "127.0.0.1", 403),
    ],
)
async def test_default_port_of_an_origin_may_be_left_out(
    browser: aiohttp.ClientSession, origin: str, host: str, status: int
) -> None:
    """A proxy may add the port to the header Host, or put the name of the Service there."""
    async with serve_dashboard(build_app(_Writable(), WithdrawnRight()), "127.0.0.1:0") as url:
        headers = {"Origin": origin, "Host": host}
        async with browser.post(
            f"{url}/login", data={"token": TOKEN}, headers=headers, allow_redirects=False
        ) as answer:
            assert answer.status == status
            assert ("a proxy in front must keep the header Host" in await answer.text()) is (status == 403)


def test_login_limiter_counts_a_network_of_ipv6_as_one_sender() -> None:
    limiter = sessions.LoginLimiter(clock=lambda: 0.0)
    tries = [limiter.may_try(f"2001:db8:1:2:{number:x}::{number:x}%eth0") for number in range(1000)]
    assert tries.count(True) == sessions.MAX_FAILED_LOGINS
    assert limiter.may_try("2001:db8:1:3::1")
    mapped = [limiter.may_try(f"::ffff:10.0.0.{number}") for number in range(200)]
    assert all(mapped), "IPv4 addresses are senders of their own"
    limiter.forgive("2001:db8:1:2:ffff::1")
    assert limiter.may_try("2001:db8:1:2::1")


async def test_flood_of_logins_reaches_the_api_server_a_few_times_only(
    browser: aiohttp.ClientSession,
) -> None:
    access = ScriptedAccess()
    async with serve_dashboard(build_app(SnapshotBackend(SCENE), access), "127.0.0.1:0") as url:
        answers = await asyncio.gather(*(log_in(browser, url, "guessed") for _ in range(100)))
        assert (answers.count(403), answers.count(429)) == (20, 80)
        assert access.reviews == 20
        assert await log_in(browser, url) == 429


async def test_logins_that_succeed_are_not_limited(browser: aiohttp.ClientSession) -> None:
    async with serve_dashboard(build_app(SnapshotBackend(SCENE), ScriptedAccess()), "127.0.0.1:0") as url:
        for _ in range(25):
            assert await log_in(browser, url) == 303


def test_login_limiter_forgets_failures_and_addresses() -> None:
    now = 0.0
    limiter = sessions.LoginLimiter(clock=lambda: now)
    assert all(limiter.may_try("10.0.0.1") for _ in range(20))
    assert not limiter.may_try("10.0.0.1")
    assert limiter.may_try("10.0.0.2")
    now = 61.0
    assert limiter.may_try("10.0.0.1")
    for number in range(20_000):
        limiter.may_try(f"address {number}")
    assert len(limiter._failures) == sessions.MAX_ADDRESSES


async def test_flood_of_streams_is_refused(browser: aiohttp.ClientSession) -> None:
    async with serve_dashboard(build_app(SnapshotBackend(SCENE), ScriptedAccess()), "127.0.0.1:0") as url:
        assert await log_in(browser, url) == 303
        streams = [await browser.get(f"{url}/changes") for _ in range(20)]
        assert [each.status for each in streams] == [200] * 12 + [429] * 8
        for each in streams:
            each.close()
        async with asyncio.timeout(10):  # closed pages free slots for others
            while await visit_stream(browser, url) != 200:
                await asyncio.sleep(0.1)


def test_viewer_with_many_sessions_ends_and_delays_no_others() -> None:
    store = sessions.SessionStore(ScriptedAccess())
    quiet = store.start(Viewer("ann"))
    loud = [store.start(Viewer("eve", groups=("viewers",))) for _ in range(sessions.MAX_SESSIONS + 1)]
    assert not quiet.ended.is_set()
    assert [each.ended.is_set() for each in loud].count(False) == sessions.MAX_SESSIONS_PER_VIEWER
    with ExitStack() as streams:
        for session in loud[-sessions.MAX_SESSIONS_PER_VIEWER :]:
            while store.may_open_stream(session):
                streams.enter_context(store.count_stream(session))
        assert store.may_open_stream(quiet)
    assert store.may_open_stream(loud[-1]), "closed streams count no more"


async def visit_stream(browser: aiohttp.ClientSession, url: str) -> int:
    stream = await browser.get(f"{url}/changes")
    stream.close()
    return stream.status


async def test_dashboard_requires_the_printed_link_of_other_users(browser: aiohttp.ClientSession) -> None:
    links = OneTimeLinks()
    printed: list[str] = []
    app = build_app(SnapshotBackend(SCENE), LocalAccess(links=links))
    async with serve_dashboard(app, "127.0.0.1:0") as url:
        links.on_redeemed = lambda: printed.append(links.build_url(url))
        link = links.build_url(url)
        for path in ("", "/snapshot.json", "/changes", "/?token=", "/?token=guessed", "/?token=%E9"):
            assert await visit(browser, url + path) == 403
        async with browser.get(link) as answer:
            assert (answer.status, answer.url.query_string) == (200, "")
        assert await visit(browser, f"{url}/workloads") == 200
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as other:
            async with other.get(link) as answer:
                assert answer.status == 403
                assert "each link works once" in await answer.text()
            assert await visit(other, printed[-1]) == 303
            assert await visit(other, url) == 200
    assert len(printed) == 2


async def test_undo_refuses_entries_of_other_clusters_in_the_same_store(tmp_path: Path) -> None:
    async with Store.open(tmp_path / "trimtab.db") as store:
        size = {"app": {"requests": {"cpu": "9"}}}
        await store.history.append([entry(1, cluster="other", before=size, after=size)])
        (foreign,) = await store.history.find()
        views: Any = SimpleNamespace(cluster_name="mine", store=store)
        backend = LiveBackend(lambda: views, name="test")
        assert await backend.entry(foreign.id) is None
        assert await backend.history(before=foreign.id) == ()
        with pytest.raises(Exception, match="not a change that can be undone"):
            await backend.undo(foreign.id, who="ann", why="")
