"""List a cluster once, into the same state that the operator keeps current by watching.

Without the right to read all namespaces, the snapshot covers the readable ones and records the rest
(`forbidden_namespaces`, `errors_by_resource`), so that a partial snapshot never passes for a complete one.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Never

import msgspec

from trimtab.aio import task_group
from trimtab.errors import TrimtabError
from trimtab.kube.cache.informer import Scope
from trimtab.kube.cache.list_pages import list_records
from trimtab.kube.cache.projection import Projection, R
from trimtab.kube.cache.store import Cache, Index
from trimtab.kube.errors import ApiError, BadRequest, Forbidden, NotFound
from trimtab.kube.kinds.emergency_stop import STOP_NAME, EmergencyStopWire
from trimtab.kube.kinds.metadata import Metadata, metadata_projection
from trimtab.kube.kinds.ownership import OWNER_INDEX
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.workloads import Workload
from trimtab.kube.rest.capabilities import supports_in_place_resize
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.discovery import Discovery, discover
from trimtab.kube.rest.resources import (
    CONFIG_MAPS,
    KPI_PROFILES,
    NAMESPACES,
    NODE_QOS_POLICIES,
    OPTIMIZATION_POLICIES,
    REPLICA_SETS,
    Resource,
)
from trimtab.operator.cluster_state import RUNNING_PODS, STANDALONE_REPLICA_SETS, ClusterState
from trimtab.operator.config.loader import ConfigurationError, FieldPath, load_configuration
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.intent_index import IntentIndex
from trimtab.scan.model import POLICY_INPUTS

ALL_NAMESPACES = (None,)
"""The namespaces to list in one request for the whole cluster."""
_UNUSED_RESOURCES = frozenset({NODE_QOS_POLICIES, KPI_PROFILES})
_NAME = re.compile("[a-z0-9]([-a-z0-9]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The state of a cluster at one time, and what could not be listed."""

    state: ClusterState
    namespaces: Sequence[str | None]
    """The namespaces that were listed; None stands for all of them."""
    forbidden_namespaces: Mapping[str, str]
    """The namespaces whose pods may not be listed, each with the API server's message."""
    errors_by_resource: Mapping[str, str]
    """The resources that are missing in part or in whole, each with the reason."""
    config: OperatorConfig = field(default_factory=OperatorConfig)
    """The configuration of the cluster's operator; the default one if there is none."""
    can_resize_in_place: bool = True
    intents: IntentIndex | None = None
    """The Intents, which control the size of their targets; None if they are not known."""


CONFIG_MAP_NAME = "trimtab-operator"
NO_CONFIG = "operator configuration"
"""The gap of a snapshot without the operator's ConfigMap."""
_UNUSED_SETTINGS: Sequence[FieldPath] = (
    ("metricsSource",),
    ("additionalMetricsSources",),
    ("learning", "step"),  # it depends on the source
    *(("intents", name) for name in ("planner", "planners", "actuators", "plugins")),
)
"""The settings that no scan uses; they may name plugins that only the operator's image has."""


class _ConfigMapWire(msgspec.Struct, frozen=True):
    data: Mapping[str, str] | None = None


class _Listing(NamedTuple):
    """A resource to list, and the cache for its records."""

    resource: Resource
    projection: Projection[Any]
    scope: Scope
    cache: Cache[Any]


class ListedInformers:
    """Fills caches by one list each instead of a watch; the methods are those of `InformerSet`.

    The running pods are listed first: the namespaces where that is permitted are those that everything is listed from.
    """

    def __init__(
        self, client: Client, namespaces: Sequence[str] | None, *, operator_namespace: str = ""
    ) -> None:
        """Create an empty set; without `namespaces`, all readable ones are listed.

        Policies are listed if the namespace of the operator is given, and from there as well.
        """
        self._client = client
        self._wanted = namespaces
        self._operator_namespace = operator_namespace
        self._listings: list[_Listing] = []
        self._listeners: list[Callable[[Discovery], None]] = []
        self._errors: dict[str, str] = {}
        self._missing: dict[tuple[Resource, str | None], str] = {}
        self.namespaces: Sequence[str | None] = ALL_NAMESPACES
        """The namespaces that could be listed; None stands for all of them."""
        self.forbidden_namespaces: dict[str, str] = {}
        """The namespaces whose pods may not be listed, each with the API server's message."""
        self.has_policies = False
        """True if the server has OptimizationPolicies and they are read."""

    def watch_resource(
        self,
        resource: Resource,
        projection: Projection[R],
        *,
        scope: Scope | None = None,
        indexes: Mapping[str, Index[R]] | None = None,
        optional: bool = False,
    ) -> Cache[R]:
        """Return a cache that the next list fills; that of a resource which no scan uses stays empty."""
        del optional
        cache: Cache[R] = Cache(indexes)
        if resource not in _UNUSED_RESOURCES and (self._operator_namespace or resource not in POLICY_INPUTS):
            self._listings.append(_Listing(resource, projection, scope or Scope(), cache))
        return cache

    def on_discovery(self, listener: Callable[[Discovery], None]) -> None:
        """Call the listener before the lists, so that it can add the custom kinds of the cluster."""
        self._listeners.append(listener)

    def errors_by_resource(self) -> Mapping[str, str]:
        """Return the resources that are missing in part or in whole, each with the reason."""
        return self._errors

    def unsynced_reason(self, resource: Resource, namespace: str) -> str:
        """Return the reason why a resource is missing in a namespace; empty if it is not."""
        return self._missing.get((resource, None), "") or self._missing.get((resource, namespace), "")

    async def wait_synced(self) -> None:
        """List everything."""
        # Pods come first: where they may be listed decides which namespaces are readable at all.
        (pods,) = (each for each in self._listings if each.scope == RUNNING_PODS)
        self.namespaces = await self._list_readable(pods)
        discovery = await discover(self._client)
        # Custom kinds such as Rollout are known only now; the listener adds their lists.
        for listener in self._listeners:
            listener(discovery)
        # A server without Trimtab answers a list of its kinds with 403 where a user may not read everything.
        self.has_policies = bool(self._operator_namespace) and (
            discovery.has_resource(OPTIMIZATION_POLICIES) is not False
        )
        async with task_group() as group:
            for each in self._listings:
                if each is not pods and self._is_listed(each.resource, discovery):
                    group.create_task(self._list(each))
        await self._list_orphans(pods.cache)

    async def run(self) -> Never:
        """Keep nothing current."""
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async def _list_readable(self, pods: _Listing) -> Sequence[str | None]:
        """List the running pods, and return the namespaces that they could be listed from."""
        wanted = self._wanted
        if wanted is None:
            try:
                await self._fill(pods, None)
            # Most users may read only their own namespaces. The scan then covers those, and names the others.
            except Forbidden:
                wanted = await self._list_namespaces()
            else:
                return ALL_NAMESPACES
        readable = []
        for namespace in wanted:
            try:
                await self._fill(pods, namespace)
            except Forbidden as error:
                self.forbidden_namespaces[namespace] = error.message
            else:
                readable.append(namespace)
        if not readable:
            reason = next(iter(self.forbidden_namespaces.values()), "there is no namespace")
            raise TrimtabError(
                f"{self._client.connection.context}: no pods could be listed: {reason}; run `trimtab doctor`"
            )
        return readable

    async def _list_namespaces(self) -> list[str]:
        """List all namespaces, or the one of the context if namespaces may not be listed."""
        try:
            return [
                found.name async for found in list_records(self._client, NAMESPACES, metadata_projection())
            ]
        except Forbidden:
            return [self._client.connection.namespace]

    def _is_listed(self, resource: Resource, discovery: Discovery) -> bool:
        if resource not in POLICY_INPUTS:
            return True
        return self.has_policies and discovery.has_resource(resource) is not False

    def _namespaces_of(self, resource: Resource) -> Sequence[str | None]:
        if not resource.namespaced or None in self.namespaces:
            return ALL_NAMESPACES
        if resource == OPTIMIZATION_POLICIES:
            return sorted({self._operator_namespace, *filter(None, self.namespaces)})
        return self.namespaces

    async def _list(self, listing: _Listing) -> None:
        """List a resource; record it if it is forbidden, or if it is a custom kind that the server cannot list."""
        for namespace in self._namespaces_of(listing.resource):
            try:
                await self._fill_permitted(listing, namespace)
            except ApiError as error:
                # Without its Deployments a cluster would look as if there were hardly anything to size.
                if not _is_skippable(listing.resource, error):
                    raise
                self._errors[str(listing.resource)] = error.message
                self._missing[listing.resource, namespace] = error.message

    async def _fill(self, listing: _Listing, namespace: str | None) -> None:
        resource, projection, scope, cache = listing
        async for record in list_records(
            self._client, resource, projection, namespace=namespace, labels=scope.labels, fields=scope.fields
        ):
            cache.put(record)

    async def _fill_permitted(self, listing: _Listing, namespace: str | None) -> None:
        """List a resource; read the namespaces that are covered one by one if a Role in each of them permits only that."""
        try:
            await self._fill(listing, namespace)
        except Forbidden:
            if listing.resource != NAMESPACES or None in self.namespaces:
                raise
            for name in filter(None, self.namespaces):
                found = await self._client.get(NAMESPACES, name, into=listing.projection.wire_type)
                listing.cache.put(listing.projection.project(found))

    async def _list_orphans(self, pods: Cache[Pod]) -> None:
        """List the ReplicaSets that a Deployment left behind (`--cascade=orphan`): their labels are those of owned ones."""
        listings = [each for each in self._listings if each.resource == REPLICA_SETS]
        (standalone,) = (each for each in listings if each.scope == STANDALONE_REPLICA_SETS)
        (every,) = (each.cache for each in listings if each is not standalone)
        known: Cache[Workload] = standalone.cache
        replica_set: Metadata
        for replica_set in list(every):
            is_known = known.get(replica_set.name, replica_set.namespace) is not None
            if replica_set.owner is None and not is_known and pods.find(OWNER_INDEX, replica_set.uid):
                scope = Scope(fields=f"metadata.name={replica_set.name}")
                await self._fill(standalone._replace(scope=scope), replica_set.namespace)


async def take_snapshot(
    client: Client,
    *,
    namespaces: Sequence[str] | None = None,
    operator_namespace: str = "",
    annotations: Iterable[str] = (),
) -> ClusterSnapshot:
    """Take a snapshot of these namespaces, or of all that may be read.

    With the namespace of an operator, the snapshot has its policies and its configuration too. `annotations` are the
    keys of annotations that it has besides our own.
    """
    for namespace in namespaces or ():
        if not _NAME.fullmatch(namespace):  # the API server takes an empty name as all namespaces
            raise TrimtabError(
                f"--namespace {namespace!r}: this is not a valid namespace name; write it like shop"
            )
    found, problem = (
        await read_operator_config(client, operator_namespace) if operator_namespace else (None, "")
    )
    if found and not problem:
        found, problem = await _apply_emergency_stop(client, operator_namespace, found)
    config = found or (
        OperatorConfig(namespace=operator_namespace) if operator_namespace else OperatorConfig()
    )
    informers = ListedInformers(client, namespaces, operator_namespace=operator_namespace)
    state = ClusterState(
        informers,
        operator_namespace=operator_namespace,
        reserved_weight=lambda: config.limits.reserved_weight,
        annotations=annotations,
    )
    intents = IntentIndex(informers)
    await informers.wait_synced()
    intents.limit_namespaces(config.intents.max_per_namespace)
    for name in namespaces or ():
        if name not in informers.forbidden_namespaces and not _is_used(state, name):
            await _check_exists(client, name)
    errors = dict(informers.errors_by_resource())
    if informers.has_policies and problem:
        errors[str(CONFIG_MAPS)] = problem
    if informers.has_policies and found is None:
        errors[NO_CONFIG] = f"not found in namespace {operator_namespace}; name its namespace with --home"
    return ClusterSnapshot(
        state,
        informers.namespaces,
        informers.forbidden_namespaces,
        errors,
        config,
        not informers.has_policies or await supports_in_place_resize(client),
        intents,
    )


async def read_operator_config(client: Client, namespace: str) -> tuple[OperatorConfig | None, str]:
    """Return the configuration of the operator in a namespace, and the reason why it is not known.

    It is None if there is no operator, and the default one if it cannot be read.
    """
    try:
        found = await client.get(CONFIG_MAPS, CONFIG_MAP_NAME, namespace=namespace, into=_ConfigMapWire)
    except NotFound:
        return None, ""
    except Forbidden as error:
        return OperatorConfig(namespace=namespace), f"the operator's configuration: {error.message}"
    origin = f"ConfigMap {namespace}/{CONFIG_MAP_NAME}"
    try:
        return load_configuration(
            text=(found.data or {}).get("config.yaml", "{}"),
            origin=origin,
            environment={},
            ignored=_UNUSED_SETTINGS,
        ), ""
    except ConfigurationError as error:
        return OperatorConfig(namespace=namespace), str(error)


async def _apply_emergency_stop(
    client: Client, namespace: str, config: OperatorConfig
) -> tuple[OperatorConfig, str]:
    """Return the configuration in effect, and the reason why an emergency stop is not known."""
    try:
        stop = await client.get(CONFIG_MAPS, STOP_NAME, namespace=namespace, into=EmergencyStopWire)
    except NotFound:
        return config, ""
    except Forbidden as error:
        return config, f"an emergency stop: {error.message}"
    return config.with_stop_reason(str(stop.to_stop())), ""


async def list_selected_uids(
    client: Client, kinds: Iterable[Resource], namespaces: Sequence[str | None], *, labels: str
) -> set[str]:
    """Return the uids of the workloads with these labels; the API server parses the selector, as for kubectl."""
    projection = metadata_projection()
    found: set[str] = set()
    for resource, namespace in itertools.product(kinds, namespaces):
        try:
            async for record in list_records(
                client, resource, projection, namespace=namespace, labels=labels
            ):
                found.add(record.uid)
        except BadRequest as error:
            raise TrimtabError(f"--selector {labels}: {error.message}") from None
        except ApiError as error:
            if not _is_skippable(resource, error):
                raise  # a skippable kind failed in the snapshot too: it has no workloads to select
    return found


def _is_skippable(resource: Resource, error: ApiError) -> bool:
    """Return whether a scan continues without a resource: a forbidden or unknown one, or any custom kind.

    A custom kind may depend on a conversion webhook that is gone while its CRD is still there; that must not fail the
    whole scan. Built-in kinds are not skipped for an error that may be temporary.
    """
    is_custom = "." in resource.group  # the built-in groups that a scan lists have no dot
    return is_custom or isinstance(error, Forbidden | NotFound)


def _is_used(state: ClusterState, namespace: str) -> bool:
    return bool(state.pods.in_namespace(namespace)) or any(state.list_workloads(namespace))


async def _check_exists(client: Client, namespace: str) -> None:
    try:
        await client.get(NAMESPACES, namespace)
    except NotFound:
        raise TrimtabError(
            f"--namespace {namespace}: the cluster has no such namespace; see `kubectl get namespaces`"
        ) from None
    except Forbidden:
        return
