"""`trimtab resume`: the end of an emergency stop."""

import asyncio
from typing import Annotated

from cyclopts import Parameter

from trimtab.cli._common.scan_options import friendly_errors
from trimtab.kube.auth import load_connection
from trimtab.kube.kinds.emergency_stop import STOP_NAME
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.rbac import SYSTEM_NAMESPACE
from trimtab.kube.rest.resources import CONFIG_MAPS


def resume(
    *,
    namespace: Annotated[str, Parameter(name=["--namespace", "-n"])] = SYSTEM_NAMESPACE,
    context: str | None = None,
    kubeconfig: str | None = None,
) -> None:
    """End an emergency stop: operator and agents go on where they were.

    The cause is found:

        trimtab resume

    A change that was in progress goes on, or is reverted if it took too long meanwhile.

    Parameters
    ----------
    namespace
        The namespace in which Trimtab is installed.
    context
        The kubeconfig context to use instead of the current one.
    kubeconfig
        The kubeconfig file to use instead of $KUBECONFIG or ~/.kube/config.
    """
    print(asyncio.run(_resume(namespace, context, kubeconfig)))


async def _resume(namespace: str, context: str | None, kubeconfig: str | None) -> str:
    connection = load_connection(kubeconfig=kubeconfig, context=context)
    async with Client(connection, timeout=15) as client, friendly_errors(connection):
        is_deleted = await client.delete(CONFIG_MAPS, STOP_NAME, namespace=namespace)
    if not is_deleted:
        return (
            f"{connection.context}: there is no emergency stop in namespace {namespace}; nothing was changed"
        )
    return (
        f"{connection.context}: resumed. Operator and agents of namespace {namespace} go on within seconds."
    )
