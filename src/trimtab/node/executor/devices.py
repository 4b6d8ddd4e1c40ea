"""Which block devices an entry of the policy means, as the kernel numbers them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from trimtab.api.nodeqospolicy import BlockIO, BlockType


def numbers(block: BlockIO, *, folder: Path = Path("/dev")) -> tuple[str, ...]:
    """`major:minor` of a device, or of all volumes of a volume group; none for what is not there.

    A pod's volume is not known on the node by the name that the policy has for it, and so stays without a throttle.
    """
    path = folder / block.name.removeprefix("/dev/")
    if block.type is BlockType.DEVICE:
        found = [path]
    elif block.type is BlockType.VOLUME_GROUP and path.is_dir():
        found = sorted(path.iterdir())
    else:
        found = []
    return tuple(number for each in found if (number := _number(each)))


def _number(path: Path) -> str | None:
    try:
        status = path.stat()
    except OSError:
        return None
    if not stat.S_ISBLK(status.st_mode):
        return None
    return f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
