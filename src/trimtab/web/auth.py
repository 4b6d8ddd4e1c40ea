"""Authenticate viewers and authorize their actions.

On the loopback of a user's own machine, the viewer is that user and may do whatever the process may. In a cluster, a
viewer presents a Kubernetes token once: TokenReview authenticates it, and SubjectAccessReview authorizes. A viewer who
may get OptimizationPolicies may view; one who may patch a workload may act on it. The token is not stored.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from trimtab.kube.errors import ApiError, KubeError, describe
from trimtab.kube.kinds.workloads import BUILT_IN, WorkloadKey, qualify_kind
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.discovery import discover
from trimtab.kube.rest.resources import OPTIMIZATION_POLICIES, Resource

TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
SUBJECT_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
_RIGHTS_HINT = "the dashboard's own account needs the rights of deploy/operator/dashboard.yaml"

LINK_PARAMETER = "token"
"""The query parameter of a one-time link."""
DISCOVERY_SECONDS = 60.0
"""The seconds after which the server is asked again for a kind that it did not have."""


@dataclass(frozen=True, slots=True)
class Viewer:
    """A user who may view the dashboard."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class AccessDenied:
    """The reason why a user may not view the dashboard."""

    reason: str


class Access(Protocol):
    """Authenticates and authorizes viewers."""

    requires_token: bool
    """True if a viewer must present a token first."""

    async def authenticate(self, token: str) -> Viewer | AccessDenied:
        """Return the viewer of a token, or the reason why access is denied."""
        ...

    async def may_view(self, viewer: Viewer) -> bool | None:
        """Return whether a viewer may still view; None if the cluster did not answer."""
        ...

    async def may_act(self, viewer: Viewer, key: WorkloadKey) -> bool: ...


class OneTimeLinks:
    """Links that open one session each; the next link is made when one was used.

    Every user of a machine reaches its loopback, but only one sees where the links are printed.
    """

    def __init__(self) -> None:
        self._token = secrets.token_urlsafe(24)
        self.on_redeemed: Callable[[], None] = lambda: None
        """Is called when a link was used, to print the next one."""

    def build_url(self, address: str) -> str:
        return f"{address}/?{LINK_PARAMETER}={self._token}"

    def redeem(self, token: str) -> bool:
        """Return whether this is the token of the current link, which is then used up."""
        if not secrets.compare_digest(token.encode(), self._token.encode()):
            return False
        self._token = secrets.token_urlsafe(24)
        self.on_redeemed()
        return True


class LocalAccess:
    """Grants everything to the user of this machine; with `links`, to whoever opens one of them."""

    requires_token = False

    def __init__(self, name: str = "the local user", *, links: OneTimeLinks | None = None) -> None:
        self._viewer = Viewer(name)
        self._links = links

    async def authenticate(self, token: str) -> Viewer | AccessDenied:
        if self._links is None or self._links.redeem(token):
            return self._viewer
        return AccessDenied("open the link that Trimtab printed last; each link works once")

    async def may_view(self, viewer: Viewer) -> bool | None:  # noqa: ARG002 - the local user keeps all rights
        return True

    async def may_act(self, viewer: Viewer, key: WorkloadKey) -> bool:  # noqa: ARG002 - every viewer may act on every workload
        return True


class ClusterAccess:
    """Authenticates and authorizes users of a cluster through its API server."""

    requires_token = True

    def __init__(self, client: Client) -> None:
        self._client = client
        self._resources = {qualify_kind(each.kind, each.group): each for each in BUILT_IN}
        self._discovery_lock = asyncio.Lock()
        self._next_discovery = float("-inf")

    async def authenticate(self, token: str) -> Viewer | AccessDenied:
        if not token:
            return AccessDenied("enter a token")
        try:
            answer = await self._client.review(TOKEN_REVIEWS, {"spec": {"token": token}})
            status = answer.get("status") or {}
            if not status.get("authenticated"):
                return AccessDenied(
                    "the cluster rejected this token: it is unknown or has expired; create a new one"
                )
            user = status.get("user") or {}
            viewer = Viewer(
                name=user.get("username", ""),
                uid=user.get("uid", ""),
                groups=tuple(user.get("groups") or ()),
                extra={name: tuple(values) for name, values in (user.get("extra") or {}).items()},
            )
            if await self._review_access(viewer, "get", OPTIMIZATION_POLICIES):
                return viewer
        except ApiError as error:
            return AccessDenied(f"the cluster did not review the token: {describe(error)}; {_RIGHTS_HINT}")
        except KubeError as error:
            return AccessDenied(f"the cluster did not respond: {describe(error)}; try again")
        return AccessDenied(
            f"{viewer.name} may not get optimizationpolicies in all namespaces, which the dashboard requires; "
            "ask an administrator for a ClusterRoleBinding"
        )

    async def may_view(self, viewer: Viewer) -> bool | None:
        try:
            return await self._review_access(viewer, "get", OPTIMIZATION_POLICIES)
        except KubeError:
            return None

    async def may_act(self, viewer: Viewer, key: WorkloadKey) -> bool:
        try:
            resource = await self._find_resource(key.kind)
            if resource is None:
                return False
            return await self._review_access(
                viewer, "patch", resource, namespace=key.namespace, name=key.name
            )
        except KubeError:
            return False  # deny if the review fails

    async def _find_resource(self, kind: str) -> Resource | None:
        """Find the resource of a kind; custom kinds such as Rollout are discovered from the server."""
        async with self._discovery_lock:  # a page checks many workloads at once
            now = time.monotonic()
            if kind not in self._resources and now >= self._next_discovery:
                found = (await discover(self._client)).scalable
                self._resources |= {qualify_kind(each.kind, each.group): each for each in found}
                self._next_discovery = now + DISCOVERY_SECONDS
        return self._resources.get(kind)

    async def _review_access(
        self, viewer: Viewer, verb: str, resource: Resource, *, namespace: str = "", name: str = ""
    ) -> bool:
        spec = {
            "user": viewer.name,
            "uid": viewer.uid,
            "groups": list(viewer.groups),
            "extra": {each: list(values) for each, values in viewer.extra.items()},
            "resourceAttributes": {
                "verb": verb,
                "group": resource.group,
                "resource": resource.plural,
                "namespace": namespace,
                "name": name,
            },
        }
        answer = await self._client.review(SUBJECT_REVIEWS, {"spec": spec})
        return bool((answer.get("status") or {}).get("allowed"))


PERMISSION_TTL_SECONDS = 60.0
MAX_PERMISSIONS = 20_000
"""The number of cached answers; beyond it the oldest is dropped."""


class PermissionCache:
    """Caches which workloads a viewer may act on, to show only the allowed buttons.

    A history page names many workloads and refreshes with every change. An action itself is authorized again by
    `action_handlers`: the buttons grant nothing.
    """

    def __init__(self, access: Access, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._access = access
        self._clock = clock
        self._cache: dict[tuple[Viewer, WorkloadKey], tuple[bool, float]] = {}

    async def filter_allowed(self, viewer: Viewer, keys: Iterable[WorkloadKey]) -> frozenset[WorkloadKey]:
        """Return the workloads that the viewer may act on."""
        asked = list(dict.fromkeys(keys))
        answers = await asyncio.gather(*(self._is_allowed(viewer, key) for key in asked))
        return frozenset(key for key, may in zip(asked, answers, strict=True) if may)

    async def _is_allowed(self, viewer: Viewer, key: WorkloadKey) -> bool:
        # Taken out and put back at the end, so that the answer that was not used for longest is dropped first.
        may, until = self._cache.pop((viewer, key), (False, float("-inf")))
        if until <= self._clock():
            may, until = await self._access.may_act(viewer, key), self._clock() + PERMISSION_TTL_SECONDS
        while len(self._cache) >= MAX_PERMISSIONS:
            del self._cache[next(iter(self._cache))]
        self._cache[viewer, key] = may, until
        return may
