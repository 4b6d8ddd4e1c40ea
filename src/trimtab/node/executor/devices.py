"""Which block devices an entry of the policy means, as the kernel numbers them.

By sysfs, of which an agent in a container sees its node's; of the devices themselves it sees none.
"""

from __future__ import annotations

from pathlib import Path

from trimtab.api.nodeqospolicy import BlockIO, BlockType


def numbers(block: BlockIO, *, sys: Path = Path("/sys")) -> tuple[str, ...]:
    """`major:minor` of a device, or of all volumes of a volume group; none for what is not there.

    A pod's volume is not known on the node by the name that the policy has for it, and so stays without a throttle.
    """
    folder, name = sys / "class" / "block", block.name.removeprefix("/dev/")
    if block.type is BlockType.DEVICE:
        # Another name of a device, such as /dev/disk/by-id/…, is a link to it, for an agent that sees it.
        found = [folder / str(Path("/dev", name).resolve()).removeprefix("/dev/").replace("/", "!")]
    elif block.type is BlockType.VOLUME_GROUP:
        found = [each for each in sorted(folder.glob("dm-*")) if _is_of_group(each, name)]
    else:
        found = []
    return tuple(number for each in found if (number := _text(each / "dev")))


def _is_of_group(device: Path, group: str) -> bool:
    """Volumes are called GROUP-VOLUME, in which a dash of either's own name is two."""
    called, begins = _text(device / "dm" / "name"), f"{group.replace('-', '--')}-"
    return called.startswith(begins) and not called.startswith(f"{begins}-")


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
