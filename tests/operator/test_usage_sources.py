"""The usage sources of the operator: those of the configuration, and those with the Secret of a policy."""

from pathlib import Path

import pytest

from trimtab.kube.rest.client import Client
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.usage_sources import UsageSources
from trimtab.store import Store
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
