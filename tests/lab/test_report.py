"""The page of a back-test is whole in itself."""

from trimtab.lab.backtest import Schedule, backtest
from trimtab.lab.report import Outcome, page
from trimtab.lab.sample import sample
from trimtab.sizing import strategy


def test_the_page_shows_each_strategy_and_the_worst_containers_and_fetches_nothing() -> None:
    fleet = sample(8)
    outcomes = [
        Outcome("vpa", "", backtest(fleet, strategy("vpa", 8), Schedule())),
        Outcome("vpa", "margin=<0>", backtest(fleet, strategy("vpa", 8, margin=0), Schedule())),
    ]
    text = page("A & B", outcomes, [("STRATEGY", "SLACK"), ("vpa", "1")])
    assert "A &amp; B" in text
    assert "vpa margin=&lt;0&gt;: slack" in text
    assert text.count("<svg") == 2
    assert "The worst of vpa" in text
    assert "spiky-0" in text
    assert "<script" not in text
    assert "src=" not in text
