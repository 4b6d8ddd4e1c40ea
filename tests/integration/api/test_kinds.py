"""What the other kinds mean, where their fields alone do not say it."""

from typing import Any

import pytest
import yaml

from api.test_kinds import BY_NAME, EXAMPLES

from .conftest import Kinds


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_example_is_one_that_we_and_the_server_take(path: Any, kinds: Kinds) -> None:
    manifest = yaml.safe_load(path.read_text())
    kind = BY_NAME[manifest["kind"]]
    ours = kind.read(manifest, origin=path.name)
    theirs = kinds.create(kind, manifest["spec"])
    assert kind.read({**theirs, "metadata": manifest["metadata"]}) == ours
