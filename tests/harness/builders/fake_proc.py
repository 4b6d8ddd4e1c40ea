"""Make a /proc in which the machine outside its pods stands still, for an agent on a busy machine.

What others use would leave best-effort pods nothing, which is right of the agent and no use to a test.
"""

from pathlib import Path


def proc(folder: Path, *, memory_kib: tuple[int, int] | None = None) -> Path:
    """This machine's, but for the CPU time that it has used in all: that stays as it is now.

    So does its memory where it is given: all of it, and what is available.
    """
    folder.mkdir()
    for name in ("meminfo", "pressure", "sys"):
        (folder / name).symlink_to(f"/proc/{name}")
    if memory_kib is not None:
        total, available = memory_kib
        (folder / "meminfo").unlink()
        (folder / "meminfo").write_text(f"MemTotal: {total} kB\nMemAvailable: {available} kB\n")
    (folder / "stat").write_bytes(Path("/proc/stat").read_bytes())
    return folder
