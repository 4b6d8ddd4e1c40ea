"""The prices of the operator's configuration."""

import pytest

from trimtab.operator.config.loader import ConfigurationError, load_configuration
from trimtab.scan.pricing import ResourcePrices, build_prices


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
