"""The names that dashboards and alerts rely on: all there, well formed, and none in the dashboard that is not."""

import subprocess

import pytest

from harness import UnavailableError, packages
from trimtab.operator.metrics import Metrics


def test_prometheus_own_checker_finds_nothing_to_say() -> None:
    try:
        packages.install("prometheus")
    except UnavailableError as why:
        pytest.skip(str(why))
    metrics = Metrics()
    metrics.usage_ratio.labels("shop/default", "cpu").observe(0.8)
    metrics.applications.labels("shop/default", "InPlace").inc()
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=metrics.render(), capture_output=True, check=False
    )
    complaints = [line for line in checked.stderr.decode().splitlines() if line.startswith("trimtab_")]
    assert complaints == []
    assert checked.returncode in {0, 3}, "3: it has advice, about what Python's own collectors say"
