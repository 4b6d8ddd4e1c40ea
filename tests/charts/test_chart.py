"""The Helm chart: what it renders, what it refuses, and that it comes, changes and goes without a trace."""

import yaml

from harness.peers.helm import CHART
from tools.chart_schema import SCHEMA_FILE, render_schema
from trimtab import __version__


def test_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == __version__


def test_schema_of_the_chart_has_the_settings_of_the_operator() -> None:
    written = (CHART.parents[1] / SCHEMA_FILE).read_text()
    assert render_schema(written) == written, "run `make crds`"
