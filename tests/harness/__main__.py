"""The harness by hand: `python -m harness`, or `make cluster`, `make cluster-down` and `make test-deps`.

The cluster for a developer runs in the background, so that the terminal stays theirs. One process keeps it, and
takes it along when it ends.
"""

import os
import signal
import subprocess
import sys
from contextlib import suppress

from cyclopts import App

from harness import UnavailableError, build, compiled, packages, process
from harness.cluster import cgroup2vm, node
from harness.cluster.cluster import Cluster

app = App(name="harness", help="The real cluster of the tests, for a developer.", version_flags=())

HOME = build.cache() / "cluster"
READY = HOME / "ready"
KEEPER = build.cache() / "cluster.pid"
LOG = build.cache() / "cluster.log"


@app.command(name="build")
def build_all() -> None:
    """Compile what is written in Go: the control plane, the node, and what the tests ask."""
    for program in (
        build.QUANTITY,
        build.KUBE,
        build.CONTAINERD,
        build.METRICS_SERVER,
        build.VICTORIA_METRICS,
        build.VPA,
        build.HELM,
    ):
        build.say(f"{program.name} {program.version} is in {program.built()}")


@app.command
def deps() -> None:
    """Install and compile all that the tests need, so that they need not wait for it."""
    packages.install(*packages.PROOF)
    build_all()
    with suppress(UnavailableError):  # only its own tests need it, and skip with the reason
        cgroup2vm.prepare()
    compiled.restore()


@app.command
def keep_compiled() -> None:
    """Keep what numba has compiled for the next checkout of the same sources."""
    compiled.keep()


@app.command
def up(*, node: bool = False) -> None:
    """Start a cluster in the background and print how to reach it.

    Parameters
    ----------
    node
        Make this machine a node of it, so that pods run. It needs root.
    """
    if not _keeper():
        _start_keeper(with_node=node)
    print(f"export KUBECONFIG={HOME / 'kubeconfig'} PATH={HOME / 'bin'}:$PATH")
    print(WELCOME.format(version=build.KUBERNETES), file=sys.stderr)


@app.command
def down() -> None:
    """End the cluster that `up` has started."""
    keeper = _keeper()
    if keeper:
        os.kill(keeper, signal.SIGTERM)
        process.wait_for(lambda: not _keeper(), what="the cluster to end")
    build.say("the cluster has ended" if keeper else "no cluster was up")


@app.command(show=False)
def keep(*, node: bool = False) -> None:
    """Be the process that keeps the cluster: it ends with this one."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    KEEPER.write_text(f"{os.getpid()} {process.started_at(os.getpid())}")
    with Cluster.start(HOME, node=node):
        READY.touch()
        signal.pause()


def _keeper() -> int | None:
    """The process that keeps a cluster, if one lives."""
    if not KEEPER.exists():
        return None
    pid, started_at = KEEPER.read_text().split()
    return int(pid) if process.started_at(int(pid)) == started_at else None


def _start_keeper(*, with_node: bool) -> None:
    build.KUBE.built()  # here, where its progress is seen
    if with_node:
        node.prepare()
    READY.unlink(missing_ok=True)
    command = [sys.executable, "-m", "harness", "keep", "--node" if with_node else "--no-node"]
    with LOG.open("w") as log:
        keeper = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    process.wait_for(lambda: READY.exists() or keeper.poll() is not None, what="the cluster", timeout=120)
    if keeper.poll() is not None:
        raise UnavailableError(f"the cluster did not start:\n{build.tail(LOG)}")


WELCOME = """
Kubernetes {version} is up. After the line above, try:

  kubectl get nodes
  kubectl run hello --image=busybox:1 --image-pull-policy=Never -- -c 'while sleep 1; do echo hello; done'
  kubectl logs --follow hello
  kubectl top pods

busybox:1 is the one image that its node has. `make cluster-down` ends it."""


if __name__ == "__main__":
    try:
        app()
    except UnavailableError as why:
        sys.exit(f"harness: {why}")
