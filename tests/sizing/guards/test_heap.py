"""The maximum heap of a process is found in its flags."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.kube.cache.projection import ProjectionCache
from trimtab.kube.kinds.heap_flags import parse_heap_flags
from trimtab.sizing.evidence import Heap
from trimtab.sizing.guards.heap import detect_heap

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
def test_detect_heap_reads_the_maximum_heap(
    args: list[str], env: dict[str, str], expected: Heap | None
) -> None:
    assert detect_heap(args, env, memory_limit=GIB) == expected


def test_detect_heap_ignores_share_of_unknown_limit() -> None:
    assert detect_heap(["java", "-XX:MaxRAMPercentage=75"], {}, memory_limit=None) is None


def test_heap_size_is_the_largest_of_several() -> None:
    assert detect_heap(["java", "-Xmx1g"], {"JAVA_OPTS": "-Xmx2g"}, memory_limit=None) == Heap(
        2 * GIB, "-Xmx in JAVA_OPTS"
    )


@pytest.mark.parametrize(
    "variable",
    ["KAFKA_HEAP_OPTS", "ES_JAVA_OPTS", "OPENSEARCH_JAVA_OPTS", "LS_JAVA_OPTS", "KAFKA_OPTS", "JVM_OPTS", "JAVA_OPTIONS", "SOLR_JAVA_MEM", "CATALINA_OPTS", "PULSAR_MEM", "CORP_OPTIONS"],
)  # fmt: skip
def test_heap_reads_java_flags_in_a_variable_of_any_name(variable: str) -> None:
    expected = Heap(6 * GIB, f"-Xmx in {variable}")
    assert detect_heap([], {variable: "-Xms1g -Xmx6g"}, memory_limit=None) == expected


@given(
    variable=st.from_regex(r"[A-Z][A-Z0-9_]{0,12}", fullmatch=True),
    gigabytes=st.integers(1, 60),
    flag=st.sampled_from(["-Xmx{}g", "-XX:MaxHeapSize={}g", "-server -J-Xmx{}g -Dx=y", '"-Xmx{}g"']),
)
def test_heap_written_in_any_template_reaches_sizing(variable: str, gigabytes: int, flag: str) -> None:
    """The kube layer keeps what sizing reads: whatever the variable's name, and in arguments too."""
    words = flag.format(gigabytes)
    for container in ({"env": [{"name": variable, "value": words}]}, {"args": [words]}):
        found = in_template({"name": "app", **container})
        assert found is not None
        assert found.max_bytes == gigabytes * GIB


def in_template(container: dict[str, Any], memory_limit: int | None = None) -> Heap | None:
    """Read a container's heap as the operator does: from the words that the kube layer keeps of its template."""
    template = msgspec.json.encode({"spec": {"containers": [container]}})
    hints = parse_heap_flags(template, ProjectionCache().intern)
    return detect_heap([hints[0].args], dict(hints[0].env), memory_limit) if hints else None


@pytest.mark.parametrize(
    ("args", "env", "expected"),
    [
        # The JVM reads JAVA_TOOL_OPTIONS first, then JDK_JAVA_OPTIONS and the command line, _JAVA_OPTIONS last.
        (["-Xmx1g"], {"JAVA_TOOL_OPTIONS": "-Xmx8g"}, Heap(GIB, "-Xmx in args")),
        (["-Xmx8g"], {"_JAVA_OPTIONS": "-Xmx1g"}, Heap(GIB, "-Xmx in _JAVA_OPTIONS")),
        ([], {"JAVA_TOOL_OPTIONS": "-Xmx8g", "JDK_JAVA_OPTIONS": "-Xmx1g"}, Heap(GIB, "-Xmx in JDK_JAVA_OPTIONS")),
        # Whether a start script reads its variable is unknown.
        ([], {"JAVA_TOOL_OPTIONS": "-Xmx8g", "JAVA_OPTS": "-Xmx1g"}, Heap(8 * GIB, "-Xmx in JAVA_TOOL_OPTIONS")),
        # A size beats a share, whichever is read last.
        (["-XX:MaxRAMPercentage=75"], {"JAVA_TOOL_OPTIONS": "-Xmx1g"}, Heap(GIB, "-Xmx in JAVA_TOOL_OPTIONS")),
        (["node", "--max-old-space-size=300"], {"NODE_OPTIONS": "--max-old-space-size=900"}, Heap(300 * MIB, "--max-old-space-size in args")),
    ],
)  # fmt: skip
def test_heap_goes_by_the_setting_that_the_runtime_goes_by(
    args: list[str], env: dict[str, str], expected: Heap
) -> None:
    assert detect_heap(args, env, memory_limit=4 * GIB) == expected


@pytest.mark.parametrize(
    ("args", "env", "memory_limit", "expected"),
    [
        (["-XX:MaxRAM=2g"], {}, 8 * GIB, Heap(512 * MIB, "-XX:MaxRAM in args")),
        (["-XX:MaxRAM=2g", "-XX:MaxRAMPercentage=75"], {}, None, Heap(1536 * MIB, "-XX:MaxRAMPercentage in args")),
        (["-XX:MaxRAMFraction=2"], {}, 4 * GIB, Heap(2 * GIB, "-XX:MaxRAMPercentage in args")),
        (["java", "-jar", "a.jar"], {}, 4 * GIB, Heap(GIB, "the JVM's default share of the memory")),
        (["java", "-jar", "a.jar"], {}, 200 * MIB, Heap(100 * MIB, "the JVM's default share of the memory")),
        (["java", "-jar", "a.jar"], {}, None, None),
        (["java", "-Xmx$(HEAP)"], {}, GIB, None),
        (["-Xmx2g"], {"PULSAR_MEM": "-XX:MaxDirectMemorySize=4g"}, GIB, Heap(6 * GIB, "-Xmx in args and -XX:MaxDirectMemorySize in PULSAR_MEM")),
        (["node", "--max-old-space-size-percentage=50"], {}, GIB, Heap(512 * MIB, "--max-old-space-size-percentage in args")),
        ([], {"MAX_HEAP_SIZE": "4G"}, None, Heap(4 * GIB, "MAX_HEAP_SIZE")),
        ([], {"ZK_SERVER_HEAP": "1000"}, None, Heap(1000 * MIB, "ZK_SERVER_HEAP")),
        ([], {"HEAP_NEWSIZE": "800M", "HEAP_DUMP_LIMIT": "2g", "HEAP_SLOTS": "10"}, GIB, None),
        ([], {"JAVA_MAX_MEM_RATIO": "75"}, 4 * GIB, Heap(3 * GIB, "JAVA_MAX_MEM_RATIO")),
        ([], {"DOTNET_GCHeapHardLimitPercent": "0x32"}, 4 * GIB, Heap(2 * GIB, "DOTNET_GCHeapHardLimitPercent")),
    ],
)  # fmt: skip
def test_heap_reads_shares_and_script_sizes(
    args: list[str], env: dict[str, str], memory_limit: int | None, expected: Heap | None
) -> None:
    assert detect_heap(args, env, memory_limit) == expected


def test_heap_in_a_template_follows_references_to_variables() -> None:
    env = [{"name": "HEAP", "value": "6g"}, {"name": "KAFKA_HEAP_OPTS", "value": "-Xmx$(HEAP)"}]
    assert in_template({"name": "app", "env": env}) == Heap(6 * GIB, "-Xmx in KAFKA_HEAP_OPTS")
    command = ["sh", "-c", "exec java -Xmx${HEAP} -jar app.jar"]
    assert in_template({"name": "app", "command": command, "env": env[:1]}) == Heap(6 * GIB, "-Xmx in args")


def test_heap_in_a_template_without_flags_is_the_default_share_of_a_java_command() -> None:
    container = {"name": "app", "command": ["/opt/java/bin/java", "-Dtoken=secret", "-jar", "app.jar"]}
    assert in_template(container, 4 * GIB) == Heap(GIB, "the JVM's default share of the memory")
    assert in_template({"name": "app", "command": ["/app"], "args": ["--lang=java"]}, 4 * GIB) is None


@given(
    args=st.lists(st.text(max_size=20), max_size=5),
    env=st.dictionaries(st.sampled_from(["GOMEMLIMIT", "JAVA_OPTS"]), st.text(max_size=20)),
)
def test_heap_flags_are_read_whatever_they_contain(args: list[str], env: dict[str, str]) -> None:
    found = detect_heap(args, env, memory_limit=GIB)
    assert found is None or found.max_bytes >= 0


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
def test_heap_size_beyond_any_memory_is_no_bound(args: list[str], env: dict[str, str]) -> None:
    assert detect_heap(args, env, memory_limit=GIB) is None
