"""Build container images from local files, as archives that containerd imports: no registry is asked.

A pod that uses one says `imagePullPolicy: Never`. Another image is another `Image`: its tag, its files, and what
it runs.
"""

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness import build, packages

BUSYBOX = "busybox:1"
PAUSE = "localhost/pause:1"
SERVICE = "localhost/service:1"

Content = bytes | str | Path

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, kw_only=True)
class Image:
    """The content of an image: for each path its bytes, a file of this machine, or the target of a link."""

    tag: str
    files: Mapping[str, Content]
    entrypoint: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=lambda: {"PATH": "/bin"})

    def write(self, archive: Path) -> None:
        """Write it in the form of `docker save`."""
        layer = archive.with_suffix(".layer")
        _tar(self.files, layer)
        with layer.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        config = {
            "architecture": _ARCHITECTURES[platform.machine()],
            "os": "linux",
            "config": {
                "Entrypoint": self.entrypoint,
                "Env": [f"{name}={value}" for name, value in self.environment.items()],
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
        parts = {"Config": "config.json", "RepoTags": [self.tag], "Layers": ["layer.tar"]}
        contents: dict[str, Content] = {
            "config.json": json.dumps(config).encode(),
            "layer.tar": layer,
            "manifest.json": json.dumps([parts]).encode(),
        }
        _tar(contents, archive)
        layer.unlink()


def _tar(files: Mapping[str, Content], archive: Path) -> None:
    with tarfile.open(archive, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            if isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
                tar.addfile(entry)
            elif isinstance(content, Path):
                found = content.stat()
                # What Python has compiled it takes only for a source of the same time.
                entry.size, entry.mode, entry.mtime = found.st_size, 0o755, int(found.st_mtime)
                with content.open("rb") as file:
                    tar.addfile(entry, file)
            else:
                entry.size, entry.mode = len(content), 0o755
                tar.addfile(entry, io.BytesIO(content))


def busybox() -> Image:
    """A shell and its companions, for whatever a test wants done in a container."""
    packages.install("busybox-static")
    program = Path("/bin/busybox")
    listed = subprocess.run([program, "--list"], capture_output=True, text=True, check=True)
    files: dict[str, Content] = {f"bin/{name}": "busybox" for name in listed.stdout.split()}
    files["bin/busybox"] = program.read_bytes()
    return Image(tag=BUSYBOX, files=files, entrypoint=("/bin/sh",))


def pause(scratch: Path) -> Image:
    """A program that holds the namespaces of a pod and does nothing."""
    packages.install("gcc", "libc6-dev")
    program = scratch / "pause"
    source = "int pause(void); int main() { for (;;) pause(); }"
    compiler = ["gcc", "-static", "-O2", "-x", "c", "-", "-o", str(program)]
    subprocess.run(compiler, input=source, text=True, check=True)
    return Image(tag=PAUSE, files={"pause": program.read_bytes()}, entrypoint=("/pause",))


def service() -> Image:
    """A small service that works for its answers: see harness/go/service."""
    program = build.SERVICE.built() / "service"
    return Image(tag=SERVICE, files={"service": program.read_bytes()}, entrypoint=("/service",))
