"""Compile the programs written in Go, once for each version of their sources.

A program is a Go module in `harness/go` that pins what it is made of. Its binaries land in a folder of the
cache that is named by version and by a hash of the module, so a changed pin builds again and an old build stays
usable. What comes from Debian is not built here: see `packages`.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from harness import UnavailableError

SOURCES = Path(__file__).parent / "go"
KUBERNETES = "v1.36.3"


def cache() -> Path:
    """The folder that outlives a run: $TEST_CACHE, or else ~/.cache/trimtab."""
    return Path(os.environ.get("TEST_CACHE") or Path.home() / ".cache" / "trimtab")


def say(line: str) -> None:
    print(f"==> {line}", file=sys.stderr, flush=True)


@dataclass(frozen=True, kw_only=True)
class Program:
    """One Go module and the binaries that it gives."""

    name: str
    version: str
    packages: tuple[str, ...] = (".",)
    links: tuple[str, ...] = ()
    """Other names of the binary: it looks at the name that it was called by."""
    variables: tuple[str, ...] = ()
    """Variables that the linker sets, as `path.name=value`."""
    minutes: float
    """The duration of a first build on two cores, printed for those who wait."""
    home: Path = field(default=SOURCES, repr=False)
    """The folder of the module."""

    @property
    def sources(self) -> Path:
        return self.home / self.name

    @property
    def folder(self) -> Path:
        digest = hashlib.sha256(repr(self).encode())
        for path in sorted(path for path in self.sources.rglob("*") if path.is_file()):
            digest.update(str(path.relative_to(self.sources)).encode() + path.read_bytes())
        return cache() / f"{self.name}-{self.version}-{digest.hexdigest()[:12]}"

    def built(self) -> Path:
        """The folder with the binaries, compiled first where this version of them is not there yet."""
        folder = self.folder
        if folder.is_dir():
            return folder
        if not shutil.which("go"):
            raise UnavailableError(
                f"{self.name} cannot be built: there is no `go` on PATH; install Go 1.26 or later"
            )
        with locked(self.name):
            if not folder.is_dir():  # another run may have built it while this one waited
                self._build(folder)
        return folder

    def _build(self, folder: Path) -> None:
        say(f"building {self.name} {self.version}, about {self.minutes:g} min the first time")
        started = time.monotonic()
        with tempfile.TemporaryDirectory(dir=cache(), prefix=f".{self.name}-") as scratch:
            made = Path(scratch) / "bin"
            made.mkdir()
            flags = " ".join(["-s -w", *(f"-X {variable}" for variable in self.variables)])
            command = ["go", "build", "-trimpath", "-ldflags", flags, "-o", f"{made}/", *self.packages]
            _run_with_progress(command, self, Path(scratch) / "log")
            for link in self.links:
                (made / link).symlink_to(self.name)
            made.rename(folder)
        say(f"{self.name} {self.version} built in {time.monotonic() - started:.0f} s")


def _run_with_progress(command: list[str], program: Program, log: Path) -> None:
    started = time.monotonic()
    environment = os.environ | {"CGO_ENABLED": "0"}
    with (
        log.open("w") as output,
        subprocess.Popen(
            command, cwd=program.sources, env=environment, stdout=output, stderr=subprocess.STDOUT
        ) as go,
    ):
        while True:
            try:
                status = go.wait(timeout=20)
                break
            except subprocess.TimeoutExpired:
                say(
                    f"  {program.name}: {time.monotonic() - started:.0f} s of about {program.minutes * 60:.0f}"
                )
            except BaseException:
                go.terminate()
                raise
    if status:
        raise RuntimeError(f"{program.name} did not build:\n{tail(log)}")


def tail(log: Path, lines: int = 20) -> str:
    """Return the end of a log, which holds the error."""
    text = log.read_text(errors="replace") if log.exists() else ""
    return "\n".join(text.splitlines()[-lines:]) or f"(nothing in {log})"


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Lock a build, so that the second of two runs on a machine waits for the first."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f"{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another run that is building {name}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


QUANTITY = Program(name="quantity", version=KUBERNETES, minutes=0.2)
KUBE = Program(
    name="kube",
    version=KUBERNETES,
    links=("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl"),
    # A module is not a checkout, and so knows no version of its own: clients would see v0.0.0-master.
    variables=tuple(
        f"k8s.io/component-base/version.{name}={value}"
        for name, value in (("gitVersion", KUBERNETES), ("gitMajor", "1"), ("gitMinor", "36"))
    ),
    minutes=7,
)
CONTAINERD = Program(
    name="containerd",
    version="v2.4.2",
    packages=tuple(
        f"github.com/containerd/containerd/v2/cmd/{name}"
        for name in ("containerd", "containerd-shim-runc-v2", "ctr")
    ),
    minutes=3,
)
METRICS_SERVER = Program(
    name="metricsserver",
    version="v0.9.0",
    packages=("sigs.k8s.io/metrics-server/cmd/metrics-server",),
    minutes=3,
)
VICTORIA_METRICS = Program(
    name="victoriametrics",
    version="v1.110.0",
    packages=("github.com/VictoriaMetrics/VictoriaMetrics/app/victoria-metrics",),
    minutes=1,
)
HELM = Program(name="helm", version="v4.3.1", packages=("helm.sh/helm/v4/cmd/helm",), minutes=2)
SERVICE = Program(name="service", version="v1", minutes=0.1)
VPA = Program(name="vpa", version="v1.8.1", minutes=2)
