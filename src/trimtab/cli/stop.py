"""`trimtab stop`: the emergency stop."""

import asyncio
import getpass
from typing import Annotated

from cyclopts import Parameter

from trimtab.cli._common.scan_options import friendly_errors
from trimtab.errors import TrimtabError
from trimtab.kube.auth import load_connection
from trimtab.kube.errors import AlreadyExists, ApiError, NotFound
from trimtab.kube.kinds.emergency_stop import AUTHOR_KEY, REASON_KEY, STOP_NAME
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.rbac import SYSTEM_NAMESPACE
from trimtab.kube.rest.resources import CONFIG_MAPS, Resource

_SELF_REVIEWS = Resource(
    "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False
)


def stop(
    *,
    reason: str = "",
    namespace: Annotated[str, Parameter(name=["--namespace", "-n"])] = SYSTEM_NAMESPACE,
    context: str | None = None,
    kubeconfig: str | None = None,
) -> None:
    """Stop every change of operator and agents within seconds, until `trimtab resume`.

    Something goes wrong, and Trimtab may be the cause:

        trimtab stop --reason 'checkout is slow'

    Nothing new begins, and a change in progress stays where it is, between two pods. New pods get the size of their template.
    Agents restore what they have set. Recommendations and statuses go on. It works without a leader and without the webhook; it
    creates the ConfigMap trimtab-stop, as kubectl can too.

    Parameters
    ----------
    reason
        The reason, which statuses, the dashboard and logs show.
    namespace
        The namespace in which Trimtab is installed.
    context
        The kubeconfig context to use instead of the current one.
    kubeconfig
        The kubeconfig file to use instead of $KUBECONFIG or ~/.kube/config.
    """
    print(asyncio.run(_stop(reason, namespace, context, kubeconfig)))


async def _stop(reason: str, namespace: str, context: str | None, kubeconfig: str | None) -> str:
    connection = load_connection(kubeconfig=kubeconfig, context=context)
    async with Client(connection, timeout=15) as client, friendly_errors(connection):
        data = {REASON_KEY: reason, AUTHOR_KEY: await _find_user(client)}
        body = {"metadata": {"name": STOP_NAME}, "data": data}
        try:
            await client.create(CONFIG_MAPS, body, namespace=namespace)
        except AlreadyExists:
            return f"{connection.context}: Trimtab is stopped already; `trimtab resume` ends the stop"
        except NotFound:
            raise TrimtabError(
                f"{connection.context}: there is no namespace {namespace}; name that of Trimtab with --namespace"
            ) from None
    return (
        f"{connection.context}: stopped. Operator and agents of namespace {namespace} change nothing from now on, as soon as "
        "they see ConfigMap trimtab-stop, which takes seconds. `trimtab doctor` shows the stop, `trimtab resume` ends it."
    )


async def _find_user(client: Client) -> str:
    """Return the name by which the API server knows this user, or else the name on this machine."""
    try:
        found = await client.review(_SELF_REVIEWS, {})
        return str(found["status"]["userInfo"]["username"])
    except (ApiError, KeyError):  # before Kubernetes 1.28
        return getpass.getuser()
