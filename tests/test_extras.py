"""An optional package that is missing is reported in one line with its extra."""

from __future__ import annotations

import pytest

from trimtab.errors import TrimtabError
from trimtab.lazy import require_extra


def test_require_extra_names_module_and_extra() -> None:
    with (
        pytest.raises(TrimtabError) as failed,
        require_extra("pictures", "--output png", alternative="write .html"),
    ):
        import no_such_package  # type: ignore[import-not-found]  # noqa: F401
    assert str(failed.value) == (
        "--output png: no_such_package is not installed; run: pip install 'trimtab[pictures]'; or write .html"
    )


def test_require_extra_leaves_missing_modules_of_ours() -> None:
    with pytest.raises(ModuleNotFoundError), require_extra("lab", "it"):
        import trimtab.no_such_module  # type: ignore[import-not-found]  # noqa: F401
