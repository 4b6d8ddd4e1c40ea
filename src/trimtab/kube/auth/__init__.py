"""Who we are to a cluster and how to reach it: from kubeconfigs, service accounts and plugins to a `Connection`.

The rest of `kube` needs only this:

    from trimtab.kube.auth import load_connection

    connection = load_connection(context="staging")
"""

from trimtab.kube.auth.cluster_access import ContextSummary, contexts, load_connection, runs_in_pod
from trimtab.kube.auth.connection import Connection, Identity

__all__ = ["Connection", "ContextSummary", "Identity", "contexts", "load_connection", "runs_in_pod"]
