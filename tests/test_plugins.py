"""A family of plugins, and what is said of one that cannot be used."""

from importlib.metadata import EntryPoint

import pytest

from trimtab import plugins
from trimtab.errors import TrimtabError
from trimtab.plugins import Family


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("trimtab_of_nobody:Strategy", "ModuleNotFoundError: No module named 'trimtab_of_nobody'"),
        ("trimtab.plugins:Nothing", "AttributeError"),
    ],
)
def test_plugin_that_cannot_be_loaded_is_named(
    monkeypatch: pytest.MonkeyPatch, value: str, says: str
) -> None:
    broken = EntryPoint("odd", value, "trimtab.tests")
    monkeypatch.setattr(plugins, "_find_installed", lambda _: {"odd": broken})
    family: Family[plugins.Plugin] = Family("strategy", "trimtab.tests")
    with pytest.raises(TrimtabError, match=f"strategy 'odd' cannot be loaded from {value} .*{says}"):
        family.load_type("odd")
