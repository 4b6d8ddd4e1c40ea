"""The real things that the tests run against, made on this machine: no mocks, no registry, no Docker.

`build` compiles what is written in Go, `packages` fetches what Debian has, and `process` runs it on loopback ports that
were free. tests/README.md has an index. `tests/integration/conftest.py` makes fixtures of the real things;
`python -m harness` gives the same cluster to a developer.
"""

NODE_FOLDERS = frozenset({"on_node", "e2e"})
"""Folders of integration tests that share the one node of this machine."""


class UnavailableError(Exception):
    """This machine cannot run it; the message says why, and a test is skipped with that reason."""
