"""A /proc by which the machine outside its pods stands still, for an agent on a machine that does other things too.

What others use would leave best-effort pods nothing, which is right of the agent and no use to a test.
"""

from pathlib import Path


def proc(folder: Path) -> Path:
    """This machine's, but for the CPU time that it has used in all: that stays as it is now."""
    folder.mkdir()
    for name in ("meminfo", "pressure", "sys"):
        (folder / name).symlink_to(f"/proc/{name}")
    (folder / "stat").write_bytes(Path("/proc/stat").read_bytes())
    return folder
