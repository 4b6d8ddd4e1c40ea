"""List resources from the namespaces that a scan may read, and resolve label selectors."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from trimtab.errors import TrimtabError
from trimtab.kube.cache.projection import Projection, R
from trimtab.kube.cache.store import Cache
from trimtab.kube.errors import ApiError, BadRequest, Forbidden, NotFound
from trimtab.kube.kinds.metadata import metadata_projection
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.list_pages import list_records
from trimtab.kube.rest.resources import Resource

ALL_NAMESPACES = (None,)
"""The scope that lists all namespaces in one request."""


class ResourceLister:
    """Fills caches from the readable namespaces, and records what could not be listed."""

    def __init__(
        self, client: Client, scopes: Sequence[str | None], errors_by_resource: dict[str, str]
    ) -> None:
        self._client = client
        self._scopes = scopes
        self._errors_by_resource = errors_by_resource

    async def fill(
        self, cache: Cache[R], resource: Resource, projection: Projection[R], *, labels: str = ""
    ) -> None:
        """List a resource; record it if it is forbidden, or if it is a custom kind that the server cannot list."""
        for namespace in self._scopes if resource.namespaced else ALL_NAMESPACES:
            try:
                async for record in list_records(
                    self._client, resource, projection, namespace=namespace, labels=labels
                ):
                    cache.put(record)
            except ApiError as error:
                if not is_skippable(resource, error):
                    raise
                self._errors_by_resource[str(resource)] = error.message


def is_skippable(resource: Resource, error: ApiError) -> bool:
    """Return whether a scan continues without a resource: a forbidden or unknown one, or any custom kind.

    A custom kind may depend on a conversion webhook that is gone while its CRD is still there; that must not fail the
    whole scan. Built-in kinds are not skipped for an error that may be temporary.
    """
    is_custom = "." in resource.group  # the built-in groups that a scan lists have no dot
    return is_custom or isinstance(error, Forbidden | NotFound)


async def list_selected_uids(
    client: Client, kinds: Iterable[Resource], scopes: Sequence[str | None], *, labels: str
) -> set[str]:
    """Return the uids of the workloads with these labels; the API server parses the selector, as for kubectl."""
    projection = metadata_projection()
    found: set[str] = set()
    for resource, namespace in itertools.product(kinds, scopes):
        try:
            async for record in list_records(
                client, resource, projection, namespace=namespace, labels=labels
            ):
                found.add(record.uid)
        except BadRequest as error:
            raise TrimtabError(f"--selector {labels}: {error.message}") from None
        except ApiError as error:
            if not is_skippable(resource, error):
                raise  # a skippable kind failed in the snapshot too: it has no workloads to select
    return found
