"""The usage sources of the operator: those of the configuration, and those with the Secret of a policy."""

from pathlib import Path
from typing import Any, Self

import pytest

from trimtab.kube.rest.client import Client
from trimtab.operator import usage_sources
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.usage_sources import UsageSources
from trimtab.store import Store
from trimtab.testing import ScriptedSource, steady
from trimtab.usage.prometheus.source import Prometheus


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
        return self

    async def __aexit__(self, *_: object) -> None:
        self._record("close")


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace the configuration's sources by fragile ones, and return what happens to them."""
    found: list[str] = []

    def build(provider: str, **settings: Any) -> FragileSource:
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


async def test_usage_sources_close_those_opened_before_one_that_fails(
    tmp_path: Path, client: Client, events: list[str]
) -> None:
    config = fragile_config(tmp_path, b="open")
    async with Store.open(tmp_path / "trimtab.db") as store:
        with pytest.raises(RuntimeError, match="http://b fails to open"):
            async with UsageSources(config, client=client, store=store):
                pytest.fail("must not open")
    assert events == ["open http://a", "open http://b", "close http://a"]


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
