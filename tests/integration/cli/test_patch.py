"""Files and folders that `trimtab patch` writes, where kustomize is installed."""

import pytest

from cli.test_patch import (  # noqa: F401 - tests
    test_patch_adds_entries_to_a_kustomization_of_any_name,
    test_patch_skips_files_that_also_define_unselected_workloads,
)
from harness import UnavailableError, build


@pytest.fixture(autouse=True)
def _with_kustomize(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        monkeypatch.setenv("PATH", str(build.KUBE.built()), prepend=":")
    except UnavailableError as why:
        pytest.skip(str(why))
