"""The usage sources of the operator: those of the configuration, and those with the Secret of a policy."""

import asyncio
from pathlib import Path
from typing import Any, Self

import pytest

from harness.usage_settings import refuse_tokens
from trimtab.kube.rest.client import Client
from trimtab.operator import usage_sources
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.usage_sources import UsageSources
from trimtab.store import Store
from trimtab.testing import ScriptedSource, steady
from trimtab.usage.errors import UsageError
from trimtab.usage.prometheus.source import Prometheus
from trimtab.usage.source import UsageQuery


async def test_usage_sources_open_one_with_the_secret_of_a_policy_at_its_first_use(
    tmp_path: Path, client: Client
) -> None:
    config = OperatorConfig.model_validate(
        {
            "secretsFolder": str(tmp_path),
            "metricsSource": {"settings": {"url": "https://prometheus:9090", "token_file": "/own"}},
        }
    )
    async with (
        Store.open(tmp_path / "trimtab.db") as store,
        UsageSources(config, client=client, store=store) as sources,
    ):
        assert list(sources) == [""]
        found = sources["prometheus:team-a"]
        assert isinstance(found, Prometheus)
        assert found.settings.token_file == tmp_path / "team-a" / "token"
        assert found.settings.url == "https://prometheus:9090"
        assert sources["prometheus:team-a"] is found
        assert list(sources) == ["", "prometheus:team-a"]
        with pytest.raises(KeyError):
            _ = sources["thanos:team-a"]
        health = await found.check()
        assert not health.ok
        assert f"token_file ({tmp_path}/team-a/token): cannot be read" in health.detail + health.advice


CANCELLED, BUILD = "be cancelled", "build"


class FragileSource(ScriptedSource):
    """Records when it is opened and closed, and fails at both on demand."""

    def __init__(self, events: list[str], key: str, *, fails_to: str = "") -> None:
        super().__init__(steady(0.1, 1e8))
        self._events, self._key, self._fails_to = events, key, fails_to

    def _record(self, event: str) -> None:
        self._events.append(f"{event} {self._key}")
        if event == self._fails_to:
            raise RuntimeError(f"{self._key} fails to {event}")

    async def __aenter__(self) -> Self:
        self._record("open")
        if self._fails_to == CANCELLED:
            raise asyncio.CancelledError
        return self

    async def __aexit__(self, *_: object) -> None:
        self._record("close")


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace the configuration's sources by fragile ones, and return what happens to them."""
    found: list[str] = []

    def build(provider: str, **settings: Any) -> FragileSource:
        if settings.get("tenant") == BUILD:
            raise RuntimeError(f"{provider} has no luck")
        return FragileSource(found, settings["url"], fails_to=settings.get("tenant") or "")

    monkeypatch.setattr(usage_sources, "source", build)
    return found


def fragile_config(folder: Path, **fails_to: str) -> OperatorConfig:
    """Return a configuration with the sources http://a, http://b, http://c, of which some fail to open or close."""
    sources = [
        {
            "provider": "prometheus",
            "name": name,
            "settings": {"url": f"http://{name}", "tenant": fails_to.get(name, "")},
        }
        for name in ("a", "b", "c")
    ]
    return OperatorConfig.model_validate(
        {
            "secretsFolder": str(folder),
            "metricsSource": {key: sources[0][key] for key in ("provider", "settings")},
            "additionalMetricsSources": sources[1:],
        }
    )


async def test_usage_sources_close_those_opened_before_a_cancellation(
    tmp_path: Path, client: Client, events: list[str]
) -> None:
    config = fragile_config(tmp_path, b=CANCELLED)
    async with Store.open(tmp_path / "trimtab.db") as store:
        with pytest.raises(asyncio.CancelledError):
            async with UsageSources(config, client=client, store=store):
                pytest.fail("must not open")
    assert events == ["open http://a", "open http://b", "close http://a"]


@pytest.mark.parametrize(
    ("fails_to", "problem"), [("open", "http://a fails to open"), (BUILD, "prometheus has no luck")]
)
async def test_usage_sources_do_not_open_without_the_default_source(
    tmp_path: Path, client: Client, events: list[str], fails_to: str, problem: str
) -> None:
    config = fragile_config(tmp_path, a=fails_to)
    async with Store.open(tmp_path / "trimtab.db") as store:
        with pytest.raises(RuntimeError, match=problem):
            async with UsageSources(config, client=client, store=store):
                pytest.fail("must not open")
    assert "open http://b" not in events


async def test_usage_sources_open_the_others_although_one_fails(
    tmp_path: Path, client: Client, events: list[str]
) -> None:
    config = fragile_config(tmp_path, b="open", c=BUILD)
    async with (
        Store.open(tmp_path / "trimtab.db") as store,
        UsageSources(config, client=client, store=store) as sources,
    ):
        assert list(sources) == ["", "b", "c"]
        with pytest.raises(RuntimeError, match="http://b fails to open"):
            await sources.open("b")
        await sources.open("c")
        with pytest.raises(UsageError, match=r"source c cannot be used: .*no luck.*; correct the source"):
            await sources["c"].read(UsageQuery.last(60.0, now=1e9, step=60.0))
        events.clear()
    assert events == ["close http://a"]


async def test_usage_sources_stand_in_for_one_whose_secret_does_not_fit(
    tmp_path: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_tokens(monkeypatch)
    config = fragile_config(tmp_path)
    async with (
        Store.open(tmp_path / "trimtab.db") as store,
        UsageSources(config, client=client, store=store) as sources,
    ):
        found = sources["prometheus:team-a"]
        health = await found.check()
        assert not health.ok
        assert "the usage source prometheus with Secret team-a cannot be used" in health.detail
        assert "correct the keys of Secret team-a" in health.advice
        assert found.capabilities.history  # else containers would never get theirs
        with pytest.raises(UsageError, match="team-a cannot be used"):
            await found.estimate_cost(UsageQuery.last(60.0, now=1e9, step=60.0))


async def test_usage_sources_close_all_although_one_fails_to_close(
    tmp_path: Path, client: Client, events: list[str]
) -> None:
    config = fragile_config(tmp_path, b="close")
    async with Store.open(tmp_path / "trimtab.db") as store:
        with pytest.raises(RuntimeError, match="http://b fails to close"):
            async with UsageSources(config, client=client, store=store):
                events.clear()
    assert sorted(events) == ["close http://a", "close http://b", "close http://c"]


async def test_usage_sources_open_and_close_that_of_a_secret(
    tmp_path: Path, client: Client, events: list[str]
) -> None:
    config = fragile_config(tmp_path)
    async with (
        Store.open(tmp_path / "trimtab.db") as store,
        UsageSources(config, client=client, store=store) as sources,
    ):
        events.clear()
        await sources.open("prometheus:team-a")
        await sources.open("prometheus:team-a")
        assert events == ["open http://a"]
        await sources.close("prometheus:team-a")
        await sources.close("prometheus:team-a")
        assert events == ["open http://a", "close http://a"]
        assert "prometheus:team-a" not in sources
        await sources.open("prometheus:team-a")
        events.clear()
    assert sorted(events) == ["close http://a", "close http://a", "close http://b", "close http://c"]
