"""`trimtab import vpa` with VPA's real CRDs on the real API server."""

import pytest

from harness.builders.records import project_object
from trimtab.cli.import_ import _print_table
from trimtab.kube.kinds.vpas import vpa_projection
from trimtab.scan.vpa_import import ImportedPolicy


def test_import_vpa_narrow_table_keeps_whole_names(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "checkout-service-of-the-shop"}
    metadata = {"name": "checkout-service", "namespace": "payments-production"}
    found = project_object(vpa_projection(), {"metadata": metadata, "spec": {"targetRef": target}})
    _print_table([ImportedPolicy(found, None, ("it leaves much alone; " * 5,))])
    output = capsys.readouterr().out
    assert "…" not in output
    assert "payments-production" in output
