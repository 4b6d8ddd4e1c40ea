"""Start a real Kubernetes: the control plane in seconds, and a node that runs containers on request.

Everything listens on loopback ports that were free, so a developer's cluster and several test runs stand side by
side. TLS is as in production: one authority signs the server's certificate and the clients'. Nothing survives a
stop but the logs.
"""

import json
import os
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from harness import build, process
from harness.cluster.admin_client import Administrator
from harness.cluster.controlplane import ControlPlane
from harness.cluster.credentials import Credentials
from harness.cluster.node import Node

OUR_KINDS = Path(__file__).parents[3] / "deploy" / "crds"


class KubectlError(RuntimeError):
    """The error of a failed kubectl, with its own message."""


class Cluster:
    """A running cluster. `with Cluster.start(folder) as cluster:` stops it at the end."""

    def __init__(self, directory: Path) -> None:
        self._kubectl = build.KUBE.built() / "kubectl"
        for leftover in process.end_leftovers():
            build.say(f"ended a {leftover} that a crashed run had left")
        shutil.rmtree(directory, ignore_errors=True)
        (directory / "logs").mkdir(parents=True)
        (directory / "bin").mkdir()
        (directory / "bin" / "kubectl").symlink_to(self._kubectl)
        self.directory = directory
        self.credentials = Credentials(directory / "certificates")
        self.node: Node | None = None
        self._learned: dict[Path, set[tuple[str, int]]] = {}
        self._plane = ControlPlane(directory, self.credentials)
        self._administrator = Administrator(self._plane.server, ca=self.ca, token=self.token)

    @classmethod
    def start(cls, directory: Path, *, node: bool = False) -> Self:
        """Bring up a new cluster whose files live in this directory, with a node where asked for."""
        cluster = cls(directory)
        with ExitStack() as undo:
            undo.callback(cluster.stop)
            cluster._start()
            if node:
                cluster.add_node()
            undo.pop_all()
        return cluster

    @property
    def kubeconfig(self) -> Path:
        return self._plane.kubeconfig

    @property
    def server(self) -> str:
        return self._plane.server

    @property
    def etcd(self) -> str:
        """The etcd in which the API server keeps its objects."""
        return self._plane.etcd_url

    @property
    def ca(self) -> Path:
        return self.credentials.authority.cert

    @property
    def token(self) -> str:
        return self.credentials.token

    @property
    def client_cert(self) -> Path:
        return self.credentials.client.cert

    @property
    def client_key(self) -> Path:
        return self.credentials.client.key

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment with which a program finds this cluster and a kubectl of its version."""
        return {
            "KUBECONFIG": str(self.kubeconfig),
            "KUBECACHEDIR": str(
                self.directory / "kubectl-cache"
            ),  # an earlier cluster had the same port, perhaps
            "PATH": f"{self.directory / 'bin'}:{os.environ['PATH']}",
        }

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl as the administrator and return what it prints."""
        done = subprocess.run(
            [self._kubectl, *arguments],
            input=stdin,
            env=os.environ | self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise KubectlError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def learn(self, kinds: Path = OUR_KINDS) -> None:
        """Have the API server serve the kinds that these manifests define, unless an earlier call did."""
        if kinds in self._learned and self._learned[kinds] <= self._definitions():
            return
        self.kubectl("apply", "--server-side", "-f", str(kinds))
        self.kubectl("wait", "--for=condition=Established", "-f", str(kinds))
        self._learned[kinds] = self._definitions()

    def _definitions(self) -> set[tuple[str, int]]:
        """Each kind that was added to those of Kubernetes, as it is defined now."""
        listed = self.call("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")["items"]
        return {(each["metadata"]["uid"], each["metadata"]["generation"]) for each in listed}

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask the API server as the administrator: what sets a test's scene, many times as fast as kubectl."""
        answer: dict[str, Any] = json.loads(self._administrator.ask(method, path, body))
        return answer

    def has(self, path: str) -> bool:
        """Return whether the API server is up and serves this path."""
        try:
            self._administrator.ask("GET", path)
        except OSError:  # what HTTP refuses is one too
            return False
        return True

    def is_so(self, path: str, condition: str) -> bool:
        """Return whether the object at this path has this condition."""
        if not self.has(path):
            return False
        conditions = self.call("GET", path).get("status", {}).get("conditions", [])
        return any(each["type"] == condition and each["status"] == "True" for each in conditions)

    def log(self, component: str) -> Path:
        """Return the log file of a component of the cluster."""
        return self.directory / "logs" / f"{component}.log"

    def add_node(self) -> Node:
        """Start this machine as a node of the cluster; a second call gives the same one."""
        if self.node is None:
            self.node = Node.start(self)
        return self.node

    def start_apiserver(self) -> None:
        self._plane.apiserver.start()
        self._plane.apiserver.wait_until(lambda: self.has("/readyz"))

    def kill_apiserver(self) -> None:
        """End the API server at once, as a crash would: connections are reset."""
        self._plane.apiserver.kill()

    def restart_apiserver(self) -> None:
        """Stop the API server as an upgrade would, and bring it back on the same port."""
        self._plane.apiserver.stop(timeout=2)  # it would wait a minute for the watches that others hold
        self.start_apiserver()

    def revive_controllers(self) -> None:
        """Start those that ended again, as a kubelet would: the scheduler ends itself when it has lost track of a pod."""
        for component in (self._plane.controllers, self._plane.scheduler):
            if not component.alive:
                component.start()

    def stop_controllers(self) -> None:
        """Leave the API server alone with what is written to it: nothing is scheduled, collected or evicted."""
        self._plane.scheduler.kill()
        self._plane.controllers.kill()

    def stop(self) -> None:
        if self.node:
            self.node.stop()
            self.node = None
        self._administrator.close()
        self._plane.kill()
        shutil.rmtree(self.directory / "etcd", ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self) -> None:
        self._plane.etcd.start()
        self.start_apiserver()
        self._plane.controllers.start()
        self._plane.scheduler.start()
        # Without it no pod can be made.
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        self._plane.controllers.wait_until(lambda: self.has(account))
