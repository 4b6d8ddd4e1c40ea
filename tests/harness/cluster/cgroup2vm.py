"""Boot a real cgroup v2 kernel, Debian's own, in a small virtual machine.

Its root is this machine's file system, read-only, with a private /tmp and all controllers of cgroup v2 with PSI. It
boots in some ten seconds under software emulation, where Python is some ten times slower; so what runs in it is
small. It has no network but loopback, and what is written in it is gone with it.
"""

import base64
import gzip
import lzma
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path

from harness import UnavailableError, packages
from harness.build import cache, locked, say

MODULES = (
    "drivers/virtio/virtio",
    "drivers/virtio/virtio_ring",
    "drivers/virtio/virtio_pci_legacy_dev",
    "drivers/virtio/virtio_pci_modern_dev",
    "drivers/virtio/virtio_pci",
    "fs/netfs/netfs",
    "fs/fscache/fscache",
    "net/9p/9pnet",
    "net/9p/9pnet_virtio",
    "fs/9p/9p",
)
"""Modules that the kernel needs to reach this machine's files. Their dependencies differ from kernel to kernel."""

XZ = b"\xfd7zXZ\x00"

KERNEL = "vmlinux"
"""Unpacked, for to unpack itself takes a kernel on an emulated processor half of its boot; it is made last."""

EASY = "mitigations=off no5lvl no_timer_check"
"""Kernel arguments that save work of an emulated processor: no mitigations, little memory, and no test of a timer, which
ends in a panic on a machine so busy that the timer is late."""

INIT = """#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc p /proc; $b mount -t sysfs s /sys; $b mount -t devtmpfs d /dev
for module in /modules/*.ko; do $b insmod "$module"; done
$b mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=524288,cache=loose host /host
$b mount -t proc p /host/proc; $b mount -t sysfs s /host/sys; $b mount --bind /dev /host/dev
$b mount -t cgroup2 c /host/sys/fs/cgroup; $b mount -t tmpfs t /host/tmp
$b ip link set lo up
command=$($b sed 's/.*vmcommand=\\([^ ]*\\).*/\\1/' /proc/cmdline | $b base64 -d)
$b chroot /host /bin/bash -c "$command"; echo "vm-exit-status=$?"
$b poweroff -f
"""


@dataclass(frozen=True)
class Outcome:
    """The result of a command in the machine; status 125 if the machine itself did not end."""

    status: int
    output: str


def prepare() -> Path:
    """The folder with the kernel and what it starts with, made first where it is not there yet."""
    folder = cache() / "cgroup2vm"
    packages.install("qemu-system-x86", "cpio", "busybox-static")
    if not (folder / KERNEL).exists():
        with locked("cgroup2vm"):
            if not (folder / KERNEL).exists():
                _make(folder)
    return folder


def run(
    command: Sequence[str], *, folder: Path, timeout: float = 240.0, memory_mb: int = 1536, cpus: int = 2
) -> Outcome:
    """Boot, run the command in this folder, and give what it printed."""
    if folder.resolve().is_relative_to("/tmp"):
        raise UnavailableError(
            "the machine with cgroup v2 has a /tmp of its own: have the checkout elsewhere"
        )
    made = prepare()
    path = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])
    script = (
        f"export PATH={shlex.quote(path)} HOME=/tmp; cd {shlex.quote(str(folder))} && {shlex.join(command)}"
    )
    encoded = base64.b64encode(script.encode()).decode()
    machine = [
        *("qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max"),
        *("-m", str(memory_mb), "-smp", str(cpus)),
        *("-display", "none", "-vga", "none", "-net", "none", "-serial", "stdio", "-monitor", "none"),
        *("-no-reboot", "-kernel", str(made / KERNEL), "-initrd", str(made / "initrd.gz")),
        *("-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap"),
        *("-append", f"console=ttyS0 quiet psi=1 panic=-1 {EASY} vmcommand={encoded}"),
    ]
    try:
        done = subprocess.run(
            machine,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            check=False,
        )
        output = done.stdout
    except subprocess.TimeoutExpired as error:
        output = error.stdout or b""
    text = output.decode(errors="replace").replace("\r", "")
    found = re.findall(r"^vm-exit-status=(\d+)$", text, re.MULTILINE)
    return Outcome(
        int(found[-1]) if found else 125, re.sub(r"^vm-exit-status=.*\n?", "", text, flags=re.MULTILINE)
    )


def _load_order(folder: Path) -> list[Path]:
    """The modules, each after those that it says it depends on."""
    paths = {Path(name).name: folder / f"{name}.ko" for name in MODULES}
    needs = {
        name: [each for each in _depends(path.read_bytes()) if each in paths] for name, path in paths.items()
    }
    return [paths[name] for name in TopologicalSorter(needs).static_order()]


def _depends(module: bytes) -> list[str]:
    found = re.search(rb"\0depends=([^\0]*)\0", module)
    return found[1].decode().split(",") if found and found[1] else []


def _make(folder: Path) -> None:
    say("preparing a virtual machine with cgroup v2: Debian's kernel, about a minute")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        _download(Path(scratch))
        [package] = Path(scratch).glob("*.deb")
        _do("dpkg", "-x", str(package), str(folder / "kernel"), folder=folder)
    [modules] = (folder / "kernel" / "lib" / "modules").iterdir()
    tree = folder / "initrd"
    for name in ("bin", "modules", "proc", "sys", "dev", "host"):
        (tree / name).mkdir(parents=True)
    shutil.copy("/bin/busybox", tree / "bin")
    for number, path in enumerate(_load_order(modules / "kernel"), start=10):
        shutil.copy(path, tree / "modules" / f"{number}-{path.name}")
    (tree / "init").write_text(INIT)
    (tree / "init").chmod(0o755)
    names = "\n".join(str(path.relative_to(tree)) for path in sorted(tree.rglob("*")))
    packed = subprocess.run(
        ["cpio", "-o", "-H", "newc", "--quiet"],
        cwd=tree,
        input=names.encode(),
        capture_output=True,
        check=True,
    )
    (folder / "initrd.gz").write_bytes(gzip.compress(packed.stdout, mtime=0))
    [kernel] = (folder / "kernel" / "boot").glob("vmlinuz-*")
    whole = folder / f"{KERNEL}.part"
    whole.write_bytes(_unpack(kernel.read_bytes()))
    whole.rename(folder / KERNEL)


def _unpack(kernel: bytes) -> bytes:
    begins = kernel.find(XZ)
    if begins < 0:
        raise UnavailableError(
            "the virtual machine with cgroup v2 needs a kernel that xz has packed, as Debian's"
        )
    return lzma.LZMADecompressor().decompress(kernel[begins:])  # what follows is not its affair


def _download(folder: Path) -> None:
    listed = _do("apt-cache", "depends", "linux-image-amd64", folder=folder)
    named = re.search(r"Depends: (linux-image-\S+)", listed)
    if not named:
        raise UnavailableError("the virtual machine with cgroup v2 needs Debian's linux-image-amd64")
    _do("apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", named.group(1), folder=folder)


def _do(*command: str, folder: Path) -> str:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise UnavailableError(
            f"the virtual machine with cgroup v2 needs {command[0]}, which is not here"
        ) from None
    if done.returncode:
        raise UnavailableError(
            f"the virtual machine with cgroup v2: {command[0]} failed: {done.stderr.strip()}"
        )
    return done.stdout
