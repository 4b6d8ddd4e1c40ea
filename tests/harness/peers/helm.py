"""Run Helm and compare a cluster before and after it."""

import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

from harness import build
from harness.cluster import etcd
from harness.cluster.cluster import Cluster

CHART = Path(__file__).parents[3] / "charts" / "trimtab"
_COMES_AND_GOES = ("/registry/events/", "/registry/leases/")


class HelmError(Exception):
    """Helm does not take these values, or the cluster does not take what they make."""


class Helm:
    """`helm install trimtab charts/trimtab`, and what follows it, in one namespace of a cluster."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self.namespace = namespace
        self._program = build.HELM.built() / "helm"

    def install(self, *values: str) -> None:
        self._run("install", "trimtab", str(CHART), "--create-namespace", *_given(values))

    def upgrade(self, *values: str) -> None:
        self._run("upgrade", "trimtab", str(CHART), *_given(values))

    def uninstall(self) -> None:
        self._run("uninstall", "trimtab", "--wait")

    def lint(self) -> None:
        self._run("lint", "--strict", str(CHART))

    def render(self, *values: str) -> list[dict[str, Any]]:
        """Return the objects that the chart renders with these values, in any order."""
        said = self._run("template", "trimtab", str(CHART), *_given(values))
        # The CRDs are long, and PyYAML's own reader takes a second for them each time.
        return [found for found in yaml.load_all(said, Loader=yaml.CSafeLoader) if found]

    def _run(self, *arguments: str) -> str:
        done = subprocess.run(
            [
                self._program,
                "--namespace",
                self.namespace,
                "--kubeconfig",
                self._cluster.kubeconfig,
                *arguments,
            ],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "HELM_CACHE_HOME": "/nonexistent", "HELM_CONFIG_HOME": "/nonexistent"},
        )
        if done.returncode:
            raise HelmError(done.stderr)
        return done.stdout


def _given(values: tuple[str, ...]) -> list[str]:
    return [part for value in values for part in ("--set", value)]


def inventory(cluster: Cluster) -> set[str]:
    """The name of every object of a cluster that stays."""
    return {key for key in etcd.keys(cluster.etcd) if not key.startswith(_COMES_AND_GOES)}
