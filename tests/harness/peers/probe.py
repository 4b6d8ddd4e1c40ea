"""Build an image of `probe.c`, a client that times each answer from the moment at which it was due."""

import subprocess
from pathlib import Path

from harness import packages
from harness.cluster.images import Image

TAG = "localhost/probe:1"
SOURCE = Path(__file__).with_suffix(".c")


def image(scratch: Path) -> Image:
    packages.install("gcc", "libc6-dev")
    program = scratch / "probe"
    subprocess.run(["gcc", "-static", "-O2", "-pthread", str(SOURCE), "-o", str(program)], check=True)
    return Image(tag=TAG, files={"probe": program.read_bytes()}, entrypoint=("/probe",))
