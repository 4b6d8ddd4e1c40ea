"""Resolve kubeconfigs, service accounts and exec plugins to a `Connection` to one API server.

The rest of `kube` needs only this:

    from trimtab.kube.auth import load_connection

    connection = load_connection(context="staging")
"""

from trimtab.kube.auth.connection import (
    Connection,
    ContextSummary,
    Identity,
    is_running_in_pod,
    list_contexts,
    load_connection,
)

__all__ = [
    "Connection",
    "ContextSummary",
    "Identity",
    "is_running_in_pod",
    "list_contexts",
    "load_connection",
]
