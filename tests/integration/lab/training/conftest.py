"""Keep compiled functions: training in tests is tiny, and compiling would take longer than all the rest."""

from collections.abc import Iterator

import pytest

from harness.xla import kept_compilations


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> Iterator[None]:
    with kept_compilations():
        yield
