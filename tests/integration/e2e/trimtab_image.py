"""Trimtab itself as an image, made of this checkout and of the Python and packages that run it, without Docker.

It holds what the Dockerfile's image holds: the interpreter, what the operator depends on and none of the extras, and
the shared libraries that any of it is linked with; and what was compiled of it, for in a pod nothing can be kept.
"""

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from importlib import metadata
from importlib.util import cache_from_source
from pathlib import Path

from packaging.requirements import Requirement

import trimtab
from harness.cluster.images import Content, Image

TAG = f"localhost/trimtab:{trimtab.__version__}"
CHART_VALUES = (
    "crds.install=false",
    f"image.repository={TAG.rpartition(':')[0]}",
    f"image.tag={trimtab.__version__}",
    "image.pullPolicy=Never",
    "operator.replicas=1",
    "operator.hostNetwork=true",
    "operator.webhook=false",
)
"""The values by which the chart runs this image on a node of the tests, whose API server has the kinds already."""
PACKAGES = "opt/trimtab"
_LEFT_OUT = {"__pycache__", "test", "tests", "idlelib", "ensurepip", "tkinter", "site-packages", "lib2to3"}
_LEFT_OUT.add(
    f"config-{sysconfig.get_config_var('LDVERSION')}-{sysconfig.get_config_var('MULTIARCH')}"
)  # a static Python


def trimtab_image() -> Image:
    files: dict[str, Content] = {}
    base = Path(sysconfig.get_paths()["stdlib"])
    interpreter = Path(sys.executable).resolve()
    for path in _below(base):
        files[str(path)[1:]] = path
    # Of ourselves, as an editable checkout, there are entry points here and no code.
    for name in ("trimtab", *_needed("trimtab")):
        for listed in metadata.files(name) or ():
            path = Path(str(listed.locate())).resolve()
            if ".." not in listed.parts and path.is_file() and not _LEFT_OUT & set(listed.parts):
                files[f"{PACKAGES}/{listed}"] = path
    ours = Path(trimtab.__file__).parent
    for path in _below(ours):
        files[f"{PACKAGES}/trimtab/{path.relative_to(ours)}"] = path
    files |= _compiled(files)
    linked = [
        interpreter,
        *(path for path in files.values() if isinstance(path, Path) and ".so" in path.name),
    ]
    for path in (interpreter, *_libraries(linked)):
        files[str(path)[1:]] = path
    files["bin/trimtab"] = (
        f"#!{interpreter}\nfrom trimtab.cli import main\n\nif __name__ == '__main__':\n    main()\n".encode()
    )
    environment = {
        "PATH": "/bin",
        "PYTHONPATH": f"/{PACKAGES}",
        "HOME": "/tmp",
        "NUMBA_CACHE_DIR": "/tmp/numba",
    }
    return Image(tag=TAG, files=files, entrypoint=("/bin/trimtab",), environment=environment)


def _below(folder: Path) -> Iterator[Path]:
    for where, folders, names in os.walk(folder):
        folders[:] = sorted({*folders} - _LEFT_OUT)  # which is most of it, and is not even looked into
        yield from (path for name in sorted(names) if (path := Path(where, name)).is_file())


def _compiled(files: Mapping[str, Content]) -> dict[str, Content]:
    """Return the compiled files of these modules."""
    found: dict[str, Content] = {}
    for name, path in files.items():
        if isinstance(path, Path) and path.suffix == ".py":
            compiled = Path(cache_from_source(str(path)))
            if compiled.exists():
                found[str(Path(name).parent / "__pycache__" / compiled.name)] = compiled
    return found


def _needed(name: str) -> set[str]:
    """Return the dependencies of a package without itself, which is the checkout."""
    left, looked_at = [(name, frozenset({""}))], set()
    while left:
        package, extras = left.pop()
        looked_at.add((package, extras))
        for text in metadata.requires(package) or ():
            wanted = Requirement(text)
            asked = wanted.marker is None or any(wanted.marker.evaluate({"extra": each}) for each in extras)
            found = re.sub(r"[-_.]+", "-", wanted.name).lower(), frozenset({"", *wanted.extras})
            if asked and found not in looked_at:
                left.append(found)
    return {package for package, _ in looked_at} - {name}


def _libraries(programs: list[Path]) -> set[Path]:
    """Return the shared libraries of these files, by the names that the loader searches."""
    said = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=False).stdout
    found = {Path(found) for found in re.findall(r"(?:=> |^\s+)(/\S+) \(0x", said, re.MULTILINE)}
    return {path for path in found if not path.is_relative_to(sys.prefix)}  # packages bring theirs along
