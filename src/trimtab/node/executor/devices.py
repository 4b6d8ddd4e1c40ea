"""Find the block devices of a policy entry, by their kernel numbers.

This uses sysfs, because an agent in a container sees the node's sysfs but not its devices.
"""

from __future__ import annotations

from pathlib import Path

from trimtab.api.nodeqospolicy import BlockDeviceSpec, BlockType


def find_device_numbers(block: BlockDeviceSpec, *, sys: Path = Path("/sys")) -> tuple[str, ...]:
    """Return `major:minor` of a device, or of all volumes of a volume group; empty if missing.

    The node does not know a pod's volume by its name in the policy, so such an entry has no effect.
    """
    folder, name = sys / "class" / "block", block.name.removeprefix("/dev/")
    if block.type is BlockType.DEVICE:
        # Other names of a device, such as /dev/disk/by-id/…, are links to it, if the agent sees /dev.
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
    """Return the kernel's name of a volume /dev/mapper/GROUP-VOLUME or /dev/GROUP/VOLUME."""
    group, _, volume = name.partition("/")
    return volume if group == "mapper" else f"{_escape_dashes(group)}-{_escape_dashes(volume)}"


def _is_in_volume_group(volume: str, group: str) -> bool:
    begins = f"{_escape_dashes(group)}-"
    return volume.startswith(begins) and not volume.startswith(f"{begins}-")


def _escape_dashes(name: str) -> str:
    """Double the dashes of a name, because a volume is called GROUP-VOLUME."""
    return name.replace("-", "--")


def _read_text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
