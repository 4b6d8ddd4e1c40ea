"""What a survey reads of the API server at one moment: the namespaces that it may, and what a selector selects."""

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
"""All namespaces, in one request."""


class ResourceLister:
    """Fills caches from the namespaces that we may read, and notes what is refused."""

    def __init__(
        self, client: Client, scopes: Sequence[str | None], errors_by_resource: dict[str, str]
    ) -> None:
        self._client = client
        self._scopes = scopes
        self._errors_by_resource = errors_by_resource

    async def fill(
        self, cache: Cache[R], resource: Resource, shape: Projection[R], *, labels: str = ""
    ) -> None:
        """List a resource; what is refused is noted, and so is a custom kind that the server cannot list."""
        for namespace in self._scopes if resource.namespaced else ALL_NAMESPACES:
            try:
                async for record in list_records(
                    self._client, resource, shape, namespace=namespace, labels=labels
                ):
                    cache.put(record)
            except ApiError as error:
                if not is_skippable(resource, error):
                    raise
                self._errors_by_resource[str(resource)] = error.message


def is_skippable(resource: Resource, error: ApiError) -> bool:
    """Whether a scan goes on without a resource: one that is refused, or a custom kind whatever is the matter with it.

    A custom kind depends on its owner's webhooks, which may be gone while its CRD is still there; that must not cost the
    rest of the cluster. Of Kubernetes' own kinds none is left out for an error that may pass.
    """
    is_custom = "." in resource.group  # the groups of Kubernetes' own kinds that a scan lists have no dot
    return is_custom or isinstance(error, Forbidden | NotFound)


async def list_selected_uids(
    client: Client, kinds: Iterable[Resource], scopes: Sequence[str | None], *, labels: str
) -> set[str]:
    """The uids of the workloads with these labels: the server reads the selector, so it means what kubectl's does."""
    shape = metadata_projection()
    found: set[str] = set()
    for resource, namespace in itertools.product(kinds, scopes):
        try:
            async for record in list_records(client, resource, shape, namespace=namespace, labels=labels):
                found.add(record.uid)
        except BadRequest as error:
            raise TrimtabError(f"--selector {labels}: {error.message}") from None
        except ApiError as error:
            if not is_skippable(resource, error):
                raise  # and what is left out was so when they were listed: there is none to choose
    return found
