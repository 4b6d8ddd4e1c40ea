"""Compare today's decisions about changes with those of an old commit: `python -m tools.replay_oracle --help`.

The code of the old commit is imported beside today's, under another package name. For each observation that an executor
makes, today's `decide` and the old `next_actions` decide, and their actions are compared with all fields; sentences, which have
been rewritten since, only with `--texts`.
Observations come from drawn worlds (`tests/actuation/drawn_worlds.py`), and from simulated clusters with faults
(`trimtab.lab.faults`). The old code sees only the fields that its records have.
"""

from __future__ import annotations

import asyncio
import importlib
import io
import logging
import pkgutil
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any
from unittest.mock import patch

import cyclopts
import msgspec
import pydantic
import structlog

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests"))

from actuation.drawn_worlds import DrawnWorld  # noqa: E402 - it is part of the tests
from trimtab.actuation.decide.conflicts import lowers_cpu  # noqa: E402
from trimtab.actuation.decide.observation import Observation, State  # noqa: E402
from trimtab.actuation.decide.transitions import Decision, decide  # noqa: E402
from trimtab.actuation.resources import NO_LIMITS  # noqa: E402
from trimtab.kube.kinds.pods import Resources  # noqa: E402
from trimtab.lab.faults.runner import draw_case, run_case  # noqa: E402

OLD_COMMIT = "c143bab0"
"""The last commit before the table of transitions."""
OLD_PACKAGE = "trimtab_before"
INTENDED: dict[str, Callable[[Observation], bool]] = {
    "4f97aff8: new pods keep the memory limit of their template where no limit can be lowered in place": (
        lambda seen: seen.desired.memory_limits_fixed
    ),
    "48acec31: a CronJob whose template is refused is skipped": (
        lambda seen: seen.workload.key.kind == "CronJob"
    ),
    "a138933c: the change after an OOM kill raises only memory": (
        lambda seen: seen.state is State.IDLE and seen.desired.is_urgent
    ),
    "5436c5d0: memory that admission rounded up after an OOM kill is kept": (
        lambda seen: seen.state is not State.IDLE and seen.change.relief
    ),
    "9a9659c5: only changes that lower CPU are judged by throttling": (
        lambda seen: (
            seen.state is not State.IDLE and not any(lowers_cpu(seen.change, pod) for pod in seen.live)
        )
    ),
    "e2f53406: sizes in annotations stay inside the organisation's limits": (
        lambda seen: seen.desired.size_limits != NO_LIMITS
    ),
}
"""The intended differences since then, each with the observations to which it may apply."""
STEPS = 60
FIRST_WORLD, FIRST_CLUSTER = 1000, 0
MAX_EXAMPLES = 2
"""The differences of each row that are printed in full."""

app = cyclopts.App(help=__doc__)


@dataclass
class Comparison:
    """The number of observations compared, and how they differ."""

    compared: int = 0
    with_actions: int = 0
    days: float = 0.0
    rows: set[str] = field(default_factory=set)
    differences: Counter[str] = field(default_factory=Counter)
    """The number of differences, by intention or else by the row of today's table."""
    examples: dict[str, list[str]] = field(default_factory=dict)
    seconds_before: float = 0.0
    seconds_now: float = 0.0

    def add(self, other: Comparison) -> None:
        self.compared += other.compared
        self.with_actions += other.with_actions
        self.days += other.days
        self.rows |= other.rows
        self.differences += other.differences
        self.seconds_before += other.seconds_before
        self.seconds_now += other.seconds_now
        for row, texts in other.examples.items():
            self.examples[row] = [*self.examples.get(row, ()), *texts][:MAX_EXAMPLES]


class Oracle:
    """The decision code of the old commit, for observations of today's."""

    def __init__(self, folder: Path) -> None:
        sys.path.insert(0, str(folder))
        package = importlib.import_module(f"{OLD_PACKAGE}.actuation.decide")
        for each in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{each.name}")
        self._context = importlib.import_module(f"{OLD_PACKAGE}.actuation.decide.context")
        self._decide = importlib.import_module(f"{OLD_PACKAGE}.actuation.decide.next_actions").next_actions
        self._types: dict[type, type] = {}
        self._records: dict[int, tuple[object, object]] = {}
        self._current: Observation
        # A rejection is kept by a hash of its size, and equal sizes of two classes have two hashes.
        self._context.ChangeContext.rejection = lambda _, uid, sizes: self._current.rejection(
            uid, {name: Resources(*msgspec.structs.astuple(each)) for name, each in sizes.items()}
        )

    def translate(self, observation: Observation) -> object:
        """Return the old record of an observation."""
        self._current = observation
        known = _field_names(self._context.LocalObservations)
        local = {name: each for name, each in _fields(observation.local).items() if name in known}
        local["rejections"] = dict.fromkeys(observation.local.rejections, "-")
        return self._context.ChangeContext(
            workload=self.to_old(observation.workload),
            pods=[self.to_old(pod) for pod in observation.pods],
            desired=self.to_old(observation.desired),
            now=observation.now,
            observations=self._context.LocalObservations(**local),
        )

    def decide(self, context: object) -> list[object]:
        """Return the actions of the old code."""
        found: list[object] = self._decide(context)
        return found

    def to_old(self, value: Any) -> Any:
        """Return a value with each record in the class that the old code has for it."""
        if value is None or (isinstance(value, str | bytes | bool | float) and not isinstance(value, Enum)):
            return value
        if type(value) is int:
            return value
        if isinstance(value, Mapping):
            return {key: self.to_old(each) for key, each in value.items()}
        if type(value) in {list, tuple, frozenset, set}:
            return type(value)(self.to_old(each) for each in value)
        # Records of an informer are compared again and again: the value is kept with its copy, so that its id stays its own.
        if (known := self._records.get(id(value))) and known[0] is value:
            return known[1]
        if len(self._records) > 50_000:
            self._records.clear()
        old = self._build_old(value)
        self._records[id(value)] = value, old
        return old

    def _build_old(self, value: Any) -> Any:
        old_type: Any = self._old_type(type(value))
        if isinstance(value, Enum):
            return old_type(value.value)
        names = _field_names(old_type)
        stored = _stored_names(type(value))
        kept = {
            stored.get(name, name): self.to_old(each)
            for name, each in _fields(value).items()
            if stored.get(name, name) in names
        }
        if issubclass(old_type, pydantic.BaseModel):
            # Without validation: a world may hold what admission would reject.
            return old_type.model_construct(**kept)
        return old_type(**kept)

    def _old_type(self, new: type) -> type:
        if new not in self._types:
            path = new.__module__.replace("trimtab.", f"{OLD_PACKAGE}.", 1)
            self._types[new] = getattr(sys.modules.get(path), new.__name__, None) or self._search_type(new)
        return self._types[new]

    def _search_type(self, new: type) -> type:
        """Return the class of the same name from the module in which it then was."""
        found = {
            each
            for name, module in list(sys.modules.items())
            if name.startswith(f"{OLD_PACKAGE}.")
            and isinstance(each := getattr(module, new.__name__, None), type)
            and each.__module__.startswith(OLD_PACKAGE)
        }
        if len(found) != 1:
            raise LookupError(f"{OLD_COMMIT} has {len(found)} classes {new.__name__}")
        return found.pop()


def _field_names(record: Any) -> frozenset[str]:
    if isinstance(record, type) and issubclass(record, pydantic.BaseModel):
        return frozenset(record.model_fields)
    if is_dataclass(record):
        return frozenset(each.name for each in fields(record))
    if hasattr(record, "__struct_fields__"):
        return frozenset(record.__struct_fields__)
    return frozenset(record._fields)


def _stored_names(record: type) -> dict[str, str]:
    """Return the names under which fields are stored: they stay where a field is renamed."""
    if not issubclass(record, msgspec.Struct):
        return {}
    return {each.name: each.encode_name for each in msgspec.structs.fields(record)}


def _fields(record: Any) -> dict[str, Any]:
    names = _field_names(type(record) if isinstance(record, pydantic.BaseModel) else record)
    return {name: getattr(record, name) for name in names}


@contextmanager
def compare_decisions(oracle: Oracle, *, texts: bool) -> Iterator[Comparison]:
    """Have the old code decide, too, whenever an executor decides."""
    result = Comparison()

    def decide_twice(observation: Observation) -> Decision:
        context = oracle.translate(observation)
        began = time.process_time()
        decision = decide(observation)
        middle = time.process_time()
        old = oracle.decide(context)
        result.seconds_now += middle - began
        result.seconds_before += time.process_time() - middle
        result.compared += 1
        result.with_actions += bool(decision.actions)
        row = decision.transition.id
        result.rows.add(row)
        try:
            now: object = [oracle.to_old(action) for action in decision.actions]
        except LookupError as error:
            now = str(error)
        if now != old and (texts or _without_sentences(now) != _without_sentences(old)):
            cause = next((text for text, applies in INTENDED.items() if applies(observation)), row)
            result.differences[cause] += 1
            examples = result.examples.setdefault(cause, [])
            if len(examples) < MAX_EXAMPLES:
                examples.append(f"  before: {_format(old)}\n  now:    {_format(decision.actions)}")
        return decision

    with patch("trimtab.actuation.executor.decide", decide_twice):
        yield result


def _without_sentences(value: Any) -> object:
    """Return a value in plain types, with an empty text for each text of several words."""
    if isinstance(value, str):
        return "" if " " in value else value
    if isinstance(value, Mapping):
        return {key: _without_sentences(each) for key, each in value.items()}
    if type(value) in {list, tuple}:
        return [_without_sentences(each) for each in value]
    if isinstance(value, Enum) or not (is_dataclass(value) or isinstance(value, msgspec.Struct)):
        return value
    return type(value), {name: _without_sentences(each) for name, each in _fields(value).items()}


def _format(actions: Any) -> str:
    if isinstance(actions, str):
        return actions
    texts = []
    for action in actions:
        values = (f"{name}={getattr(each, 'name', each)}" for name, each in _fields(action).items())
        texts.append(f"{type(action).__name__}({', '.join(sorted(values))})")
    return "; ".join(texts) or "nothing"


def extract_old_code(folder: Path) -> None:
    """Write the package of the old commit to a folder, under its other name."""
    archive = subprocess.run(  # noqa: S603 - fixed arguments
        ["git", "-C", str(ROOT), "archive", OLD_COMMIT, "src/trimtab"],  # noqa: S607 - git of the PATH
        check=True,
        capture_output=True,
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    (folder / "src/trimtab").rename(folder / OLD_PACKAGE)
    for path in (folder / OLD_PACKAGE).rglob("*.py"):
        text = path.read_text()
        path.write_text(re.sub(r"(?m)^(\s*(?:from|import) )trimtab\b", rf"\1{OLD_PACKAGE}", text))


def _run_worlds(folder: Path, first: int, count: int, texts: bool) -> Comparison:  # noqa: FBT001 - for a pool
    with compare_decisions(Oracle(folder), texts=texts) as result:
        for seed in range(first, first + count):
            world = DrawnWorld(seed)
            for _ in range(STEPS):
                world.step()
    return result


def _run_cluster(folder: Path, first: int, count: int, texts: bool) -> Comparison:  # noqa: FBT001 - for a pool
    with compare_decisions(Oracle(folder), texts=texts) as result:
        for seed in range(first, first + count):
            case = draw_case(seed, "heavy")
            asyncio.run(run_case(case))
            result.days += case.world.days
    return result


def _run_all(
    run: Callable[[Path, int, int, bool], Comparison],
    folder: Path,
    first: int,
    count: int,
    *,
    texts: bool,
    processes: int,
) -> Comparison:
    total, share = Comparison(), max(1, min(25, count // processes))
    starts = range(first, first + count, share)
    with ProcessPoolExecutor(processes) as pool:
        jobs = [pool.submit(run, folder, start, min(share, first + count - start), texts) for start in starts]
        for job in jobs:
            total.add(job.result())
    return total


@app.default
def main(*, worlds: int = 2000, clusters: int = 20, texts: bool = False, processes: int = 2) -> int:
    """Compare in so many drawn worlds and simulated clusters; exit with 1 if anything differs without intention."""
    differs = False
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with tempfile.TemporaryDirectory(prefix="trimtab-oracle-") as name:
        folder = Path(name)
        extract_old_code(folder)
        for label, run, first, count in (
            ("drawn worlds", _run_worlds, FIRST_WORLD, worlds),
            ("clusters", _run_cluster, FIRST_CLUSTER, clusters),
        ):
            if not count:
                continue
            found = _run_all(run, folder, first, count, texts=texts, processes=processes)
            days = f", {found.days:g} cluster-days" if found.days else ""
            print(
                f"{count} {label}{days}: {found.compared:,} observations, {found.with_actions:,} with actions, "
                f"{len(found.rows)} rows, {found.differences.total():,} differences; seconds of CPU to decide: "
                f"{found.seconds_before:.1f} before, {found.seconds_now:.1f} now"
            )
            for row, times in found.differences.most_common():
                differs |= row not in INTENDED
                print(f"{row}: {times}", *found.examples[row], sep="\n")
    return int(differs)


if __name__ == "__main__":
    sys.exit(app())
