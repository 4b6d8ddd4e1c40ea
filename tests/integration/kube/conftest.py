"""A client of the real API server, as a program would make it, on the loop that our programs run."""

from kube.conftest import client, pytest_asyncio_loop_factories  # noqa: F401 - a fixture and a hook
