"""Heaps that a process bounds by itself are found in what it is told, or in how its memory moves."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.sizing.evidence import Heap
from trimtab.sizing.heap import heap, is_sawtooth

MIB = 2**20
GIB = 2**30


@pytest.mark.parametrize(
    ("args", "env", "expected"),
    [
        (["java", "-Xmx512m", "-jar", "app.jar"], {}, Heap(512 * MIB, "-Xmx in args")),
        (["java", "-Xmx256m", "-Xmx1g"], {}, Heap(GIB, "-Xmx in args")),
        (["sh", "-c", "exec java -Xmx2G -jar app.jar"], {}, Heap(2 * GIB, "-Xmx in args")),
        ([], {"JAVA_TOOL_OPTIONS": "-XX:MaxRAMPercentage=75.0"}, Heap(768 * MIB, "-XX:MaxRAMPercentage in JAVA_TOOL_OPTIONS")),
        ([], {"JAVA_OPTS": "-server -XX:MaxHeapSize=64M"}, Heap(64 * MIB, "-XX:MaxHeapSize in JAVA_OPTS")),
        (["node", "--max-old-space-size=300", "x.js"], {}, Heap(300 * MIB, "--max-old-space-size in args")),
        ([], {"NODE_OPTIONS": "--max_old_space_size=300"}, Heap(300 * MIB, "--max-old-space-size in NODE_OPTIONS")),
        ([], {"GOMEMLIMIT": "900MiB"}, Heap(900 * MIB, "GOMEMLIMIT")),
        ([], {"GOMEMLIMIT": "off"}, None),
        ([], {"DOTNET_GCHeapHardLimit": "0x10000000"}, Heap(256 * MIB, "DOTNET_GCHeapHardLimit")),
        (["java", "-Xmxlots", "-Xms512m"], {}, None),
        (["nginx"], {"PATH": "/bin"}, None),
    ],
)  # fmt: skip
def test_a_heaps_bound_is_read(args: list[str], env: dict[str, str], expected: Heap | None) -> None:
    assert heap(args, env, memory_limit=GIB) == expected


def test_a_share_of_an_unknown_limit_says_nothing() -> None:
    assert heap(["java", "-XX:MaxRAMPercentage=75"], {}, memory_limit=None) is None


def test_where_several_are_given_the_largest_counts() -> None:
    assert heap(["java", "-Xmx1g"], {"JAVA_OPTS": "-Xmx2g"}, memory_limit=None) == Heap(
        2 * GIB, "-Xmx in JAVA_OPTS"
    )


@given(
    args=st.lists(st.text(max_size=20), max_size=5),
    env=st.dictionaries(st.sampled_from(["GOMEMLIMIT", "JAVA_OPTS"]), st.text(max_size=20)),
)
def test_whatever_is_written_there_is_read_without_harm(args: list[str], env: dict[str, str]) -> None:
    found = heap(args, env, memory_limit=GIB)
    assert found is None or found.most >= 0


@pytest.mark.parametrize(
    ("args", "env"),
    [
        (["java", f"-Xmx{'9' * 400}g"], {}),
        (["java", f"-Xmx{'9' * 5000}"], {}),
        (["java", f"-XX:MaxRAMPercentage={'9' * 400}"], {}),
        (["node", f"--max-old-space-size={'9' * 5000}"], {}),
        ([], {"GOMEMLIMIT": "9" * 5000}),
        ([], {"DOTNET_GCHeapHardLimit": "f" * 5000}),
    ],
)
def test_a_number_that_no_memory_has_is_no_bound(args: list[str], env: dict[str, str]) -> None:
    assert heap(args, env, memory_limit=GIB) is None


@given(climb=st.integers(5, 20), teeth=st.integers(3, 8), drop=st.floats(0.2, 0.9))
def test_a_collectors_sawtooth_is_seen(climb: int, teeth: int, drop: float) -> None:
    tooth = [1.0 - drop + drop * step / climb for step in range(climb + 1)]
    assert is_sawtooth((tooth * teeth) + tooth[:1])


def test_noise_growth_and_short_looks_are_no_sawtooth() -> None:
    noise = random.Random(1)
    assert not is_sawtooth([100 + noise.random() for _ in range(500)])
    assert not is_sawtooth([100 * noise.random() for _ in range(500)])
    assert not is_sawtooth([float(step) for step in range(500)])
    assert not is_sawtooth([500.0 - step for step in range(500)])
    assert not is_sawtooth([1.0, 2.0, 3.0, 1.0])
