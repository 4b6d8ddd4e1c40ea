"""List the modules that run from the first sample to the first resize: `python tools/trace_walk.py [SOURCE]`.

A simulated cluster runs under `sys.setprofile`; what an import runs does not count. SOURCE is the `src` folder of any commit: the
command `trimtab simulate` and the simulator's methods `step` and `resize` have always had these names.
"""

from __future__ import annotations

import io
import sys
import threading
from collections import Counter
from contextlib import redirect_stdout
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).parents[1]
ARGUMENTS = ("simulate", "trimtab", "--days", "2", "--workloads", "6", "--seed", "7", "--output", "json")
PACKAGES = ("actuation", "operator", "recommender", "sizing", "usage")
"""The packages of the walk; the others are the simulator, the cluster's records and the command."""


class ResizeReached(BaseException):
    """The first resize; no part of the product may handle it."""


class Walk:
    """The modules with a function that was called between the first step of the world and the first resize."""

    def __init__(self, source: Path) -> None:
        self._prefix = str(source.resolve() / "trimtab") + "/"
        self._is_running = False
        self._imports = 0
        self.functions: Counter[str] = Counter()
        """The number of different functions by module."""
        self._seen: set[tuple[str, str, int]] = set()

    def profile(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if code.co_name == "<module>":
            self._imports += {"call": 1, "return": -1}.get(event, 0)
            return
        if event != "call" or self._imports or not code.co_filename.startswith(self._prefix):
            return
        path = code.co_filename.removeprefix(self._prefix)
        if path == "lab/simulator/world.py" and code.co_name == "step":
            self._is_running = True
        if not self._is_running:
            return
        key = (path, code.co_qualname, code.co_firstlineno)
        if key not in self._seen:
            self._seen.add(key)
            self.functions[path] += 1
        if path in {"lab/simulator/port.py", "lab/simulator/fake_cluster.py"} and code.co_name == "resize":
            self._is_running = False
            raise ResizeReached


def main(source: Path = ROOT / "src") -> None:
    sys.path.insert(0, str(source))
    from trimtab import cli

    walk = Walk(source)
    threading.setprofile(walk.profile)
    sys.setprofile(walk.profile)
    try:
        with redirect_stdout(io.StringIO()):
            cli.run(ARGUMENTS)
    except (ResizeReached, BaseExceptionGroup):
        pass
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    modules = sorted(each for each in walk.functions if each.partition("/")[0] in PACKAGES)
    for package in PACKAGES:
        found = [each for each in modules if each.startswith(package + "/")]
        print(f"{package}: {len(found)} modules, {sum(walk.functions[each] for each in found)} functions")
    print(f"together: {len(modules)} modules, {sum(walk.functions[each] for each in modules)} functions")
    for each in modules:
        print(f"  {each} {walk.functions[each]}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
