"""The prices of the operator's configuration."""

from pathlib import Path

import pytest

from trimtab.operator.config.loader import ConfigurationError, load_configuration
from trimtab.operator.config.model import PriceSettings
from trimtab.scan.pricing import ResourcePrices, build_prices, read_prices, replace_prices


def load_prices(text: str) -> ResourcePrices:
    return build_prices(load_configuration(text=f"prices: {text}", environment={}).prices)


def test_prices_of_the_configuration_are_paid_less_the_discount() -> None:
    assert load_prices("{}") == ResourcePrices()
    found = load_prices("{cpu: 0.04, memory: 0.005, currency: €, discount: 0.25}")
    assert [found.cpu, found.memory] == pytest.approx([0.03, 0.00375])
    assert found.currency == "€"
    half = load_prices("{discount: 0.5}")
    assert (half.cpu, half.memory) == (ResourcePrices().cpu / 2, ResourcePrices().memory / 2)
    assert load_prices("{cpu: 0}").cpu == 0


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("{cpu: -1}", "prices.cpu"),
        ("{discount: 1.5}", "prices.discount"),
        ("{currency: '<b>'}", "prices.currency"),
        ("{currency: dollars and cents}", "prices.currency"),
    ],
)
def test_configuration_rejects_impossible_prices(text: str, field: str) -> None:
    with pytest.raises(ConfigurationError, match=field):
        load_prices(text)


CONFIGURED = PriceSettings.model_validate(
    {
        "cpu": 0.04,
        "memory": 0.01,
        "currency": "€",
        "discount": 0.5,
        "nodes": [{"labels": {"size": "large"}, "hour": 1}],
    }
)


def test_one_given_price_leaves_the_others_to_the_configuration() -> None:
    settings = replace_prices(CONFIGURED, read_prices(None, cpu=0.05))
    found = build_prices(settings)
    assert (found.cpu, found.memory, found.currency) == (0.05, 0.005, "€")
    assert settings.nodes == CONFIGURED.nodes


def test_without_a_given_price_those_of_the_configuration_count() -> None:
    for given in (None, read_prices(None)):
        assert build_prices(replace_prices(CONFIGURED, given)) == build_prices(CONFIGURED)


def test_prices_of_a_file_with_another_currency_replace_those_of_nodes(tmp_path: Path) -> None:
    file = tmp_path / "prices"
    file.write_text("{cpu: 1, memory: 2, currency: CHF}")
    settings = replace_prices(CONFIGURED, read_prices(file))
    assert build_prices(settings) == ResourcePrices(cpu=1, memory=2, currency="CHF")
    assert settings.nodes == ()


def test_prices_of_several_clusters_are_the_same_whatever_is_configured() -> None:
    given = read_prices(None, cpu=0.05, defaults=ResourcePrices())
    assert build_prices(replace_prices(CONFIGURED, given)) == ResourcePrices(cpu=0.05)
