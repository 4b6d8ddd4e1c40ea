"""Places in the values of a chart, found by Helm itself."""

import pytest

from trimtab.errors import TrimtabError
from trimtab.scan.patches.helm_charts import HelmChart, find_resources_paths


def test_helm_chart_requires_helm_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(TrimtabError, match="helm is not on the PATH; install it, or give paths"):
        HelmChart(".").render("web", "shop", [])


def test_places_in_finds_possible_resources() -> None:
    values = {
        "a": {"resources": None},
        "webResources": {},
        "b": {"c": {"limits": {}}},
        "d": [{"resources": {}}],
        1: {},
    }
    assert list(find_resources_paths(values)) == [("a", "resources"), ("webResources",), ("b", "c")]
