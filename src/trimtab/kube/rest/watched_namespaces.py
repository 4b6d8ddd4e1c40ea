"""Restrict a client to some namespaces, for an operator that has Roles and no ClusterRole."""

from __future__ import annotations

from dataclasses import dataclass

from trimtab.kube.rest.resources import NAMESPACES, OPTIMIZATION_POLICIES, Resource

_HOME_RESOURCES = frozenset({NAMESPACES, OPTIMIZATION_POLICIES})
"""The resources that are read in the operator's own namespace too: its policies select workloads of all namespaces."""


@dataclass(frozen=True, slots=True)
class WatchedNamespaces:
    """The namespaces that a client may read."""

    namespaces: tuple[str, ...]
    home: str
    """The operator's own namespace, of which only policies are read."""

    def namespaces_of(self, resource: Resource) -> tuple[str, ...]:
        """Return the namespaces to read a resource in, or to read themselves.

        There is none for other cluster-scoped resources, which only a ClusterRole grants.
        """
        if not resource.namespaced and resource != NAMESPACES:
            return ()
        return self._with_home(resource, *self.namespaces)

    def namespaces_affecting(self, resource: Resource, namespace: str) -> tuple[str, ...]:
        """Return the namespaces whose objects of a resource affect the workloads of one namespace."""
        return self._with_home(resource, namespace)

    def _with_home(self, resource: Resource, *namespaces: str) -> tuple[str, ...]:
        own = (self.home,) if resource in _HOME_RESOURCES else ()
        return tuple(dict.fromkeys((*namespaces, *own)))


def name_in_namespace(resource: Resource, namespace: str) -> str:
    """Return the name of a resource in one namespace, by which its errors are reported."""
    return f"{resource} in namespace {namespace}"
