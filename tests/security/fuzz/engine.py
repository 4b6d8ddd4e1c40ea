"""Feed mutated inputs to code that reads hostile bytes, and record what breaks its promises.

A target promises for every input: no exception but its declared errors, each of which is one clear line, and no more CPU
time or memory than its bounds. Time is CPU time, because other processes keep the machine busy; a watchdog
ends an input that computes without end. Memory is the growth of the resident set, which also counts what Rust and C take.
"""

from __future__ import annotations

import gc
import hashlib
import random
import re
import signal
import sys
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import trimtab
from security.fuzz.mutation import mutate
from trimtab.errors import TrimtabError

MAX_CPU_SECONDS = 1.0
MAX_MEMORY_BYTES = 64 << 20
WATCHDOG_SECONDS = 20.0
"""The CPU seconds after which an input is interrupted."""
MAX_MESSAGE_LENGTH = 4000
"""Messages that name several fields are long, but none may grow with the input."""
MAX_CORPUS = 500
_SOURCES = str(Path(trimtab.__file__).parent)
_TRACED_CALLS = 64
"""The calls of a function whose lines are recorded: later ones seldom reach others, and tracing is slow."""

RunInput = Callable[[bytes], str | None]
"""Handle one input; return a short name of the outcome, if there are several."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """Code that reads hostile bytes."""

    name: str
    seeds: Sequence[bytes]
    run: RunInput | None = None
    start: Callable[[], AbstractContextManager[RunInput]] | None = None
    """Start what handles inputs, if it needs a server or files; otherwise `run` handles them."""
    errors: tuple[type[BaseException], ...] = (TrimtabError,)
    """The declared errors. Their messages must be one clear line."""
    tokens: Sequence[bytes] = ()
    """Words of the input's language."""
    json_share: float = 0.5
    """The share of inputs that are other JSON documents; the rest has changed bytes."""
    max_cpu: float = MAX_CPU_SECONDS
    max_memory: int = MAX_MEMORY_BYTES

    @contextmanager
    def open(self) -> Iterator[RunInput]:
        with self.start() if self.start else nullcontext(self.run) as run:
            assert run is not None
            yield run


class InputTimeout(BaseException):
    """The watchdog interrupted an input."""


@dataclass(frozen=True, slots=True)
class Finding:
    """An input for which a target broke a promise."""

    kind: str
    detail: str
    data: bytes

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.data).hexdigest()[:12]


@dataclass
class FuzzReport:
    """The results of one target's inputs."""

    target: str
    inputs: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: dict[str, Finding] = field(default_factory=dict)
    """The first finding of each kind and place."""
    worst_seconds: float = 0.0
    worst_bytes: int = 0

    def add_finding(self, kind: str, place: str, detail: str, data: bytes) -> None:
        self.findings.setdefault(f"{kind}: {place}", Finding(kind, detail, data))


def fuzz(
    target: Target,
    *,
    inputs: int,
    seed: int = 0,
    guided: bool = False,
    before_input: Callable[[bytes], None] = lambda _: None,
) -> FuzzReport:
    """Feed the seeds and this many mutated inputs to a target; `guided` inputs build on those that reached new lines."""
    rng = random.Random(f"{target.name} {seed}")
    report = FuzzReport(target.name)
    corpus = list(target.seeds)
    with target.open() as run:
        for data in target.seeds:  # imports and compilation are not the cost of an input
            _run_once(run, data, target)
        gc.collect(1)
        coverage = LineCoverage() if guided else None
        for number in range(len(target.seeds) + inputs):
            is_seed = number < len(target.seeds)
            data = (
                target.seeds[number]
                if is_seed
                else mutate(rng, corpus, target.tokens, json_share=target.json_share)
            )
            before_input(data)
            known_outcomes = len(report.outcomes)
            _check_input(run, data, target, report, coverage)
            is_new = len(report.outcomes) > known_outcomes or (coverage and coverage.take_is_new())
            if is_new and not is_seed and len(corpus) < MAX_CORPUS and len(data) < 8 << 10:
                corpus.append(data)
    return report


def check_input(target: Target, data: bytes) -> FuzzReport:
    """Feed one input to a target."""
    report = FuzzReport(target.name)
    with target.open() as run:
        for seed in target.seeds[:1]:
            _run_once(run, seed, target)
        _check_input(run, data, target, report, None)
    return report


@dataclass(frozen=True, slots=True)
class _Run:
    outcome: str
    error: BaseException | None
    seconds: float
    grown: int


def _check_input(
    run: RunInput, data: bytes, target: Target, report: FuzzReport, coverage: LineCoverage | None
) -> None:
    with coverage.record() if coverage else nullcontext():
        found = _run_once(run, data, target)
    report.inputs += 1
    if found.seconds > target.max_cpu or found.grown > target.max_memory:
        # Once more: a first call may import or compile, and the collector may run at any time.
        gc.collect()
        again = _run_once(run, data, target)
        found = _Run(
            found.outcome, found.error, min(found.seconds, again.seconds), min(found.grown, again.grown)
        )
    report.worst_seconds = max(report.worst_seconds, found.seconds)
    report.worst_bytes = max(report.worst_bytes, found.grown)
    if found.seconds > target.max_cpu:
        report.add_finding("slow", "", f"{found.seconds:.2f} s of CPU time", data)
    if found.grown > target.max_memory:
        report.add_finding("memory", "", f"{found.grown >> 20} MiB", data)
    error = found.error
    if error is None:
        report.outcomes[found.outcome] += 1
        return
    place = _locate(error)
    report.outcomes[f"{type(error).__name__} {place} {_normalize(str(error))}"] += 1
    if isinstance(error, InputTimeout):
        report.add_finding("endless", place, f"interrupted after {WATCHDOG_SECONDS:g} s at {place}", data)
    elif not isinstance(error, target.errors):
        trace = "".join(traceback.format_exception(error, limit=-8))
        report.add_finding("crash", f"{type(error).__name__} {place}", trace[-4000:], data)
    elif (unclear := describe_unclear_message(str(error))) is not None:
        report.add_finding("message", place, f"{type(error).__name__} {unclear}: {str(error)[:500]!r}", data)


def describe_unclear_message(message: str) -> str | None:
    """Describe why a message is not one clear line; None if it is."""
    if not message.strip():
        return "has no message"
    if len(message) > MAX_MESSAGE_LENGTH:
        return f"has a message of {len(message)} characters"
    if not message.isprintable():
        return "has a message with line breaks, control or invisible characters"
    return None


def _run_once(run: RunInput, data: bytes, target: Target) -> _Run:
    before = _reset_peak_memory()
    error: BaseException | None = None
    outcome = ""
    with _watchdog():
        began = time.process_time()
        try:
            outcome = run(data) or "accepted"
        except (Exception, InputTimeout) as caught:  # noqa: BLE001 - whatever it is, it is a finding
            error = caught
        except BaseException as caught:
            # Rust code that panics raises a BaseException, which no handler of ours would catch.
            if isinstance(caught, KeyboardInterrupt | SystemExit) and not isinstance(caught, target.errors):
                raise
            error = caught
        seconds = time.process_time() - began
    return _Run(outcome, error, seconds, max(0, _peak_memory() - before))


@contextmanager
def _watchdog() -> Iterator[None]:
    def interrupt(*_: object) -> None:
        raise InputTimeout

    previous = signal.signal(signal.SIGVTALRM, interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, WATCHDOG_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)


def _reset_peak_memory() -> int:
    """Reset the kernel's record of the largest resident set; return the present one."""
    Path("/proc/self/clear_refs").write_bytes(b"5")
    return _read_status(rb"VmRSS:\s+(\d+)")


def _peak_memory() -> int:
    return _read_status(rb"VmHWM:\s+(\d+)")


def _read_status(pattern: bytes) -> int:
    found = re.search(pattern, Path("/proc/self/status").read_bytes())
    return int(found[1]) << 10 if found else 0


def _locate(error: BaseException) -> str:
    """Return the innermost line of ours that raised an error."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(_SOURCES)]
    frame = (ours or frames)[-1] if frames else None
    return f"{Path(frame.filename).name}:{frame.lineno}" if frame else ""


def _normalize(message: str) -> str:
    """Return what equal problems of different values have in common."""
    return re.sub(r"""(["'`]).*?\1|\d[\w.]*""", "…", message, flags=re.DOTALL)[:60]


class LineCoverage:
    """Records the lines of ours that inputs reach."""

    def __init__(self) -> None:
        self._lines: set[tuple[CodeType, int]] = set()
        self._calls: defaultdict[CodeType, int] = defaultdict(int)
        self._known = 0

    @contextmanager
    def record(self) -> Iterator[None]:
        previous = sys.gettrace()
        sys.settrace(self._trace_call)
        try:
            yield
        finally:
            sys.settrace(previous)

    def take_is_new(self) -> bool:
        """Return True if lines were reached for the first time since the last call."""
        known, self._known = self._known, len(self._lines)
        return self._known > known

    def _trace_call(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(_SOURCES):
            return None
        self._calls[code] += 1
        return self._trace_line if self._calls[code] <= _TRACED_CALLS else None

    def _trace_line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self._lines.add((frame.f_code, frame.f_lineno))
        return self._trace_line
