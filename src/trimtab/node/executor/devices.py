"""Which block devices an entry of the policy means, as the kernel numbers them.

By sysfs, of which an agent in a container sees its node's; of the devices themselves it sees none.
"""

from __future__ import annotations

from pathlib import Path

from trimtab.api.nodeqospolicy import BlockDeviceSpec, BlockType


def find_device_numbers(block: BlockDeviceSpec, *, sys: Path = Path("/sys")) -> tuple[str, ...]:
    """`major:minor` of a device, or of all volumes of a volume group; none for what is not there.

    A pod's volume is not known on the node by the name that the policy has for it, and so stays without a throttle.
    """
    folder, name = sys / "class" / "block", block.name.removeprefix("/dev/")
    if block.type is BlockType.DEVICE:
        # Another name of a device, such as /dev/disk/by-id/…, is a link to it, for an agent that sees it.
        own = folder / str(Path("/dev", name).resolve()).removeprefix("/dev/").replace("/", "!")
        found = (
            [own]
            if own.exists()
            else [each for each in _list_mapped(folder) if _read_dm_name(each) == _build_dm_name(name)]
        )
    elif block.type is BlockType.VOLUME_GROUP:
        found = [each for each in _list_mapped(folder) if _is_in_volume_group(_read_dm_name(each), name)]
    else:
        found = []
    return tuple(number for each in found if (number := _read_text(each / "dev")))


def _list_mapped(folder: Path) -> list[Path]:
    return sorted(folder.glob("dm-*"))


def _read_dm_name(device: Path) -> str:
    return _read_text(device / "dm" / "name")


def _build_dm_name(name: str) -> str:
    """What the kernel calls a volume of which a node has the links /dev/mapper/GROUP-VOLUME and /dev/GROUP/VOLUME."""
    group, _, volume = name.partition("/")
    return volume if group == "mapper" else f"{_escape_dashes(group)}-{_escape_dashes(volume)}"


def _is_in_volume_group(called: str, group: str) -> bool:
    begins = f"{_escape_dashes(group)}-"
    return called.startswith(begins) and not called.startswith(f"{begins}-")


def _escape_dashes(name: str) -> str:
    """Volumes are called GROUP-VOLUME, in which a dash of either's own name is two."""
    return name.replace("-", "--")


def _read_text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
