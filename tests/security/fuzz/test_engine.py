"""The engine must see what a target does wrong; otherwise fuzzing proves nothing."""

import random
import time

import msgspec
import pytest

from security.fuzz import engine
from security.fuzz.engine import Target, check_input, fuzz
from security.fuzz.mutation import MAX_INPUT_BYTES, mutate
from trimtab.errors import TrimtabError


def _misbehave(data: bytes) -> str:  # noqa: C901 - a case for each kind of finding
    match data:
        case b"crash":
            raise LookupError("lost")
        case b"lines":
            raise TrimtabError("one\ntwo")
        case b"silent":
            raise TrimtabError
        case b"long":
            raise TrimtabError("x" * 10_000)
        case b"slow":
            end = time.process_time() + 0.3
            while time.process_time() < end:
                pass
        case b"endless":
            while True:
                pass
        case b"memory":
            return str(len(bytearray(128 << 20)))
        case b"refused":
            raise TrimtabError("refused for a reason")
    return "fine"


TARGET = Target(name="misbehaving", seeds=(b"seed",), run=_misbehave, max_cpu=0.1)


@pytest.mark.parametrize(
    ("data", "kinds"),
    [
        (b"seed", []),
        (b"refused", []),
        (b"crash", ["crash"]),
        (b"lines", ["message"]),
        (b"silent", ["message"]),
        (b"long", ["message"]),
        (b"slow", ["slow"]),
        (b"endless", ["endless", "slow"]),
        (b"memory", ["memory"]),
    ],
)
def test_fuzzer_reports_what_a_target_does_wrong(
    data: bytes, kinds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "WATCHDOG_SECONDS", 0.5)
    report = check_input(TARGET, data)
    assert sorted(found.kind for found in report.findings.values()) == kinds
    assert all(found.data == data for found in report.findings.values())


def test_fuzzer_reaches_lines_behind_several_conditions_when_guided() -> None:
    def descend(data: bytes) -> str:
        from trimtab.api.duration import Duration

        return str(len(str(Duration.parse(data.decode("latin-1")))))

    target = Target(name="durations", seeds=(b"1s",), run=descend, errors=(Exception,))
    assert len(fuzz(target, inputs=300, guided=True).outcomes) > 5


def test_mutations_are_bounded_and_the_same_for_one_seed() -> None:
    corpus = (b'{"a":[1,{"b":"c"}]}', b"plain")
    first, second = (
        [mutate(rng, corpus, (b"(",)) for _ in range(500)] for rng in (random.Random(1), random.Random(1))
    )
    assert first == second
    assert len(set(first)) > 300
    assert max(map(len, first)) <= MAX_INPUT_BYTES
    assert sum(_is_json(each) for each in first) > 50


def _is_json(data: bytes) -> bool:
    try:
        msgspec.json.decode(data)
    except (ValueError, RecursionError):
        return False
    return True
