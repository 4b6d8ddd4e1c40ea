"""The kubectl commands of README and docs, sent to a real API server by the real kubectl."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cluster.cluster import Cluster, KubectlError

ROOT = Path(__file__).parents[3]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
BLOCK = re.compile(r"^```(?:sh|bash|console)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
WRITES = {"create", "apply", "delete"}
NEEDS_MORE = {"exec", "port-forward", "rollout", "set", "annotate", "label"}
"""The verbs that need a running pod or an object of the reader: only their options are checked."""


def list_commands() -> Iterator[str]:
    for page in PAGES:
        for block in BLOCK.findall(page.read_text()):
            for line in block.replace("\\\n", " ").splitlines():
                plain = line.strip().removeprefix("$ ")
                if plain.startswith("kubectl ") and "$(" not in plain:
                    yield re.split(r" (?:\||>|&&) ", plain)[0]


def prepare(words: list[str]) -> list[str]:
    """Return the arguments that change nothing, in the folder of the checkout."""
    verb = next(word for word in words if word in WRITES | NEEDS_MORE | {"get", "describe"})
    if verb in NEEDS_MORE:
        return [verb, "--help"]
    for option in ("-f", "-k"):
        if option in words:
            place = words.index(option) + 1
            words = [*words[:place], str(ROOT / words[place]), *words[place + 1 :]]
    # A token is issued or not, and has no dry run.
    return [*words, "--dry-run=server"] if verb in WRITES and "token" not in words else words


@pytest.mark.parametrize("command", sorted(set(list_commands())))
def test_kubectl_understands_the_command(cluster: Cluster, command: str) -> None:
    cluster.learn()
    words = shlex.split(command, comments=True)[1:]
    files = [words[at + 1] for at, word in enumerate(words) if word in {"-f", "-k"}]
    if not all((ROOT / file).exists() for file in files):
        pytest.skip("the files are made by an earlier command of the page")
    try:
        cluster.kubectl(*prepare(words))
    except KubectlError as error:
        # The objects are the reader's, and their namespaces too.
        if not re.search(r"\(NotFound\)|not found$", str(error), re.MULTILINE):
            raise
