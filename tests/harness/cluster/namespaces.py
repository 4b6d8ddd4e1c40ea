"""Make a namespace for a test and delete it afterwards."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.error import HTTPError

from harness.cluster import etcd
from harness.cluster.cluster import Cluster


def make_namespace(cluster: Cluster, name: str) -> None:
    """One in which pods can be made."""
    cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    # Without it no pod is let in, and after a restart of the API server its controller takes its time.
    with suppress(HTTPError):  # which may have been there first all the same
        cluster.call("POST", f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "default"}})


@contextmanager
def fresh_namespace(cluster: Cluster) -> Iterator[str]:
    """The name of a new one, in which pods can be made."""
    name = f"test-{secrets.token_hex(4)}"
    make_namespace(cluster, name)
    try:
        yield name
    finally:
        if cluster.node:
            cluster.call("DELETE", f"/api/v1/namespaces/{name}")
        else:
            etcd.forget(cluster.etcd, namespace=name)
