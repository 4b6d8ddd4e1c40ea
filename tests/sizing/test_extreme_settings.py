"""Settings that a policy may give have a result, however large or small: a strategy that raises sizes nothing."""

import numpy as np
import pytest
from pydantic import ValidationError

from trimtab.sizing.strategy import STRATEGIES

EXTREMES = (1.7e308, 5e-324, 2**63, 10**400)
FIELDS = [
    (name, field)
    for name in STRATEGIES.names()
    for field, info in STRATEGIES.load_type(name).settings_type.model_fields.items()
    if info.annotation in {int, float}
]


@pytest.mark.parametrize(("name", "field"), FIELDS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_strategy_rejects_an_extreme_setting_or_sizes_with_it(name: str, field: str) -> None:
    kind = STRATEGIES.load_type(name)
    for value in EXTREMES:
        try:
            settings = kind.settings_type(**{field: value})
        except ValidationError:
            continue
        strategy = kind(1, settings)
        for minute in range(30):
            strategy.observe(60.0 * minute, np.full(1, 0.1), np.full(1, 1e8))
        strategy.observe_oom(1800.0, np.zeros(1, np.intp), np.full(1, 1e8))
        found = strategy.recommend(1860.0)
        assert found.cpu.target.shape == (1,)
        strategy.explain(1860.0, 0)
