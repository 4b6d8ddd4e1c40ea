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


STARTS = {"IngestCycle.run_once": "ingest", "SizingReconciler.reconcile": "reconcile"}
"""The functions of today's code with which the two parts of the walk start."""
FIRST_INSTRUCTION = 4
"""The largest offset at which a coroutine is when it starts; it is further when it goes on."""


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
        self.parts: dict[str, set[str]] = {name: set() for name in STARTS.values()}
        """The modules of the last ingest cycle, and of the reconcile that resizes, without all that runs beside them."""
        self._part = ""

    def profile(self, frame: FrameType, event: str, value: object) -> None:
        code = frame.f_code
        if part := STARTS.get(code.co_qualname):
            self._switch_part(part, frame, event, value)
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
        if self._part:
            self.parts[self._part].add(path)
        key = (path, code.co_qualname, code.co_firstlineno)
        if key not in self._seen:
            self._seen.add(key)
            self.functions[path] += 1
        if path in {"lab/simulator/port.py", "lab/simulator/fake_cluster.py"} and code.co_name == "resize":
            self._is_running = False
            raise ResizeReached

    def _switch_part(self, part: str, frame: FrameType, event: str, value: object) -> None:
        if event == "call" and frame.f_lasti <= FIRST_INSTRUCTION:
            self._part = part
            self.parts[part].clear()
        # A coroutine that waits returns what it waits for.
        elif event == "return" and not hasattr(value, "__await__") and part == self._part:
            self._part = ""


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
    for name, entered in walk.parts.items():
        own = sorted(each for each in entered if each.partition("/")[0] in PACKAGES)
        print(f"{name}: {len(own)} modules: {', '.join(own)}")
    both = {each for found in walk.parts.values() for each in found if each.partition("/")[0] in PACKAGES}
    print(f"sample to resize: {len(both)} modules")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
