"""Install Debian packages that the tests use, where they are missing.

A package counts as present when the file that is used of it is there, so that other systems, where these come
under other names, serve as well. No service is left running by an installation: the tests start their own.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness import UnavailableError
from harness.build import locked, say

PROOF = {
    "busybox-static": "var/lib/dpkg/info/busybox-static.list",  # there is a dynamic one of the same name
    "chromium": "usr/bin/chromium",
    "containernetworking-plugins": "usr/lib/cni/ptp",
    "cpio": "usr/bin/cpio",
    "gcc": "usr/bin/gcc",
    "libc6-dev": "usr/lib/*/libc.a",
    "openssl": "usr/bin/openssl",
    "pgbouncer": "usr/sbin/pgbouncer",
    "postgresql": "usr/lib/postgresql/*/bin/postgres",
    "prometheus": "usr/bin/prometheus",
    "qemu-system-x86": "usr/bin/qemu-system-x86_64",
    "runc": "usr/sbin/runc",
}


def install(*names: str) -> None:
    """See to it that these packages are there."""
    if not _missing(names):
        return
    with locked("packages"):
        missing = _missing(names)
        if missing:
            _install(missing)


def _missing(names: tuple[str, ...]) -> list[str]:
    return [name for name in names if not any(Path("/").glob(PROOF[name]))]


def _install(missing: list[str]) -> None:
    wanted_list = " ".join(missing)
    if not shutil.which("apt-get"):
        raise UnavailableError(f"these Debian packages are missing, and there is no apt-get: {wanted_list}")
    if os.geteuid() != 0:
        raise UnavailableError(f"these Debian packages are missing: run `sudo apt-get install {wanted_list}`")
    say(f"installing Debian packages: {wanted_list}")
    with _no_service_started():
        _apt("update")
        _apt("install", "--yes", "--no-install-recommends", *missing)


def _apt(*arguments: str) -> None:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        ["apt-get", "-qq", *arguments], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise UnavailableError(f"apt-get {arguments[0]} failed: {done.stderr.strip() or done.stdout.strip()}")


@contextmanager
def _no_service_started() -> Iterator[None]:
    """Debian asks this script before a package starts its service; whatever stood there is put back."""
    policy, kept = Path("/usr/sbin/policy-rc.d"), Path("/usr/sbin/policy-rc.d.before-trimtab")
    if policy.exists() and not kept.exists():
        policy.rename(kept)
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    try:
        yield
    finally:
        policy.unlink()
        if kept.exists():
            kept.rename(policy)
