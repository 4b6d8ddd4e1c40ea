"""Places in the values of a chart, found by Helm itself."""

from pathlib import Path

import pytest
import yaml

from harness import UnavailableError, build
from scan.patches.changes import change, container
from trimtab.errors import TrimtabError
from trimtab.scan.patches.helm_charts import HelmChart
from trimtab.scan.patches.helm_values import edit_values

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {{{{ .Release.Name }}}}{suffix}}}
spec:
  template:
    spec:
      containers:
      - name: web
        resources: {{{{- toYaml {place} | nindent 10 }}}}
      - name: fixed
        resources: {{requests: {{cpu: 1}}}}
"""
SIZE = "{requests: {cpu: 1, memory: 1Gi}, limits: {memory: 2Gi}}"


@pytest.fixture
def chart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A chart of two Deployments, whose values are not named after them."""
    try:
        monkeypatch.setenv("PATH", str(build.HELM.built()), prepend=":")
    except UnavailableError as why:
        pytest.skip(str(why))
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: odd\nversion: 1.0.0\n")
    (tmp_path / "values.yaml").write_text("front: {sizes: {requests: {cpu: 3}}}\nback: {resources: {}}\n")
    for suffix, place in {"": ".Values.front.sizes", "-back": ".Values.back.resources"}.items():
        (tmp_path / "templates" / f"x{suffix}.yaml").write_text(DEPLOYMENT.format(suffix=suffix, place=place))
    return tmp_path


def test_edit_values_finds_paths_by_rendering_chart_with_helm(chart: Path) -> None:
    two = (container("web"), container("fixed"))
    front = change("prod", *two, labels={"app.kubernetes.io/instance": "prod"})
    back = change("prod-back", container("web"), labels={"app.kubernetes.io/instance": "prod"})
    text = f"# prod\nback: {{resources: {SIZE}}}\n"
    found = edit_values(
        {"prod.yaml": text}, [front, back], charts={"prod.yaml": HelmChart(str(chart))}, named={"prod.yaml"}
    )
    after = yaml.safe_load(found.files["prod.yaml"])
    small = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}}
    assert after == {"back": {"resources": small}, "front": {"sizes": small}}
    assert found.ambiguous == [
        (
            "Deployment shop/prod fixed: skipped: the chart's release prod sizes it by none of its values; "
            "give its path: --helm-path prod/fixed=path.to.resources"
        )
    ]


def test_helm_chart_reports_render_failure(chart: Path) -> None:
    (chart / "templates" / "broken.yaml").write_text('{{ fail "no way" }}\n')
    with pytest.raises(TrimtabError, match=r"helm template: .*no way"):
        HelmChart(str(chart)).render("web", "shop", [])
    assert HelmChart(str(chart / "none")).defaults == {}
