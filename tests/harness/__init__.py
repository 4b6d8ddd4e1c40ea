"""The real things that the tests run against, made on this machine: no mocks, no registry, no Docker.

`build` compiles what is written in Go and `packages` fetches what Debian has; `cluster`, `node`, `postgres`,
`prometheus` and `faultproxy` run it on loopback ports that were free. `tests/integration/conftest.py` makes fixtures of
them; `python -m harness` gives the same cluster to a developer.
"""


class UnavailableError(Exception):
    """This machine cannot run it; the message says why, and a test is skipped with that reason."""
