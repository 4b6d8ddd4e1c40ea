"""What `trimtab patch` writes into a folder, without a cluster."""

from pathlib import Path

import pytest

from survey.patches.changes import change
from trimtab.cli.patch import _patches


@pytest.mark.parametrize("name", ["kustomization.yaml", "kustomization.yml", "Kustomization"])
def test_a_kustomization_of_any_name_gets_the_entries_and_none_is_put_beside_it(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_text("resources: [web.yaml]\n")
    _patches([change()], "kustomize", tmp_path)
    assert "path: shop-deployment-web.yaml" in (tmp_path / name).read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "shop-deployment-web.yaml"])
