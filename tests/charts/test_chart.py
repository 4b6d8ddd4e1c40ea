"""The Helm chart: what it renders, what it refuses, and that it comes, changes and goes without a trace."""

import yaml

from harness.peers.helm import CHART
from trimtab import __version__


def test_it_is_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == __version__
