"""Arbitration of several requests for one knob: the outcome, the overruled requests, and values the kernel accepts."""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trimtab.node.arbiter import (
    BoundType,
    KnobRef,
    KnobRequest,
    Precedence,
    Value,
    resolve_requests,
    validate_values,
)
from trimtab.node.arbiter.value_order import is_within, to_comparable
from trimtab.node.cgroups import UNLIMITED, CgroupVersion, Knob
from trimtab.node.cgroups.knobs import (
    CPU_BURST,
    CPU_PERIOD,
    CPU_QUOTA,
    CPUSET_CPUS,
    IO_READ_BPS,
    MEMORY_LOW,
    MEMORY_MAX,
    MEMORY_MIN,
)

BE = "kubepods/besteffort"


@dataclass
class Tree:
    """A world made up of a dictionary."""

    version: CgroupVersion
    values: Mapping[tuple[str, Knob[Any]], Value] = field(default_factory=dict)

    def value(self, ref: KnobRef) -> Value | None:
        return self.values.get((ref.path, ref.knob))

    def children(self, path: str) -> Iterable[str]:
        return sorted({other for other, _ in self.values if other.rpartition("/")[0] == path})


def _request(
    knob: Knob[Any], value: Value, *, path: str = BE, strategy: str = "some", **more: Any
) -> KnobRequest:
    return KnobRequest(ref=KnobRef(path, knob), value=value, strategy=strategy, reason="a test", **more)


def _decide(*requests: KnobRequest, before: Value | None = UNLIMITED) -> tuple[Value | None, list[str]]:
    decided, conflicts = resolve_requests(requests, lambda _: before)
    return decided.get(requests[0].ref), [
        request.strategy for each in conflicts for request in each.overruled
    ]


# Precedence


def test_resolve_grants_a_single_request() -> None:
    assert _decide(_request(CPU_QUOTA, 5000)) == (5000, [])


def test_resolve_merges_equal_requests() -> None:
    assert _decide(_request(CPU_QUOTA, 5000, strategy="a"), _request(CPU_QUOTA, 5000, strategy="b")) == (
        5000,
        [],
    )


def test_resolve_ranks_safety_over_policy_over_priority() -> None:
    safety = _request(CPU_QUOTA, 3000, strategy="safety", precedence=Precedence.SAFETY)
    policy = _request(CPU_QUOTA, 2000, strategy="policy", precedence=Precedence.POLICY)
    comfort = _request(CPU_QUOTA, 1000, strategy="comfort", precedence=Precedence.PRIORITY)
    assert _decide(comfort, policy, safety) == (3000, ["comfort", "policy"])
    assert _decide(comfort, policy) == (2000, ["comfort"])


def test_resolve_prefers_the_tighter_of_equal_requests() -> None:
    low = _request(CPU_QUOTA, 1000, strategy="low")
    careless = _request(CPU_QUOTA, UNLIMITED, strategy="careless")
    assert _decide(careless, low) == (1000, ["careless"])


def test_resolve_bound_clips_weaker_requests_only() -> None:
    most = _request(CPU_QUOTA, 5000, strategy="most", bound=BoundType.AT_MOST, precedence=Precedence.SAFETY)
    assert _decide(most, _request(CPU_QUOTA, 9000, strategy="more")) == (5000, ["more"])
    assert _decide(most, _request(CPU_QUOTA, 4000)) == (4000, [])


def test_resolve_bound_alone_clips_the_current_value() -> None:
    most = _request(CPU_QUOTA, 5000, bound=BoundType.AT_MOST)
    assert _decide(most, before=UNLIMITED) == (5000, [])
    assert _decide(most, before=3000) == (3000, [])
    assert _decide(most, before=None) == (None, [])


def test_resolve_keeps_cpus_when_cpusets_are_disjoint() -> None:
    weak = _request(CPUSET_CPUS, frozenset({0, 1}), strategy="weak")
    strong = _request(CPUSET_CPUS, frozenset({2, 3}), bound=BoundType.AT_MOST, precedence=Precedence.SAFETY)
    assert _decide(weak, strong) == (frozenset({2, 3}), ["weak"])


def test_resolve_merges_throttles_by_device() -> None:
    one = _request(IO_READ_BPS, {"8:0": 100}, bound=BoundType.AT_MOST)
    other = _request(IO_READ_BPS, {"8:0": 50, "8:16": 9}, bound=BoundType.AT_MOST, strategy="other")
    assert _decide(one, other, before={}) == ({"8:0": 50, "8:16": 9}, [])


# Values that the kernel accepts


def test_validate_clips_burst_to_quota() -> None:
    tree = Tree(CgroupVersion.V2, {("pod", CPU_QUOTA): 20_000, ("pod", CPU_BURST): 0})
    admitted, _ = validate_values({KnobRef("pod", CPU_BURST): 200_000}, tree)
    assert admitted == {KnobRef("pod", CPU_BURST): 20_000}


def test_validate_lowers_existing_burst_with_the_quota() -> None:
    tree = Tree(CgroupVersion.V2, {("pod", CPU_QUOTA): 20_000, ("pod", CPU_BURST): 15_000})
    admitted, _ = validate_values({KnobRef("pod", CPU_QUOTA): 10_000}, tree)
    assert admitted == {KnobRef("pod", CPU_QUOTA): 10_000, KnobRef("pod", CPU_BURST): 10_000}


def test_validate_shrinks_child_cpusets_in_v1() -> None:
    every = frozenset(range(4))
    tree = Tree(
        CgroupVersion.V1, {(path, CPUSET_CPUS): every for path in ("k", BE, f"{BE}/pod", f"{BE}/pod/c")}
    )
    admitted, _ = validate_values({KnobRef(BE, CPUSET_CPUS): frozenset({0, 1})}, tree)
    assert {ref.path: value for ref, value in admitted.items()} == dict.fromkeys(
        (BE, f"{BE}/pod", f"{BE}/pod/c"), frozenset({0, 1})
    )


def test_validate_rejects_invalid_values_and_keeps_the_rest() -> None:
    tree = Tree(CgroupVersion.V2)
    admitted, refused = validate_values({KnobRef("a", CPU_QUOTA): 10, KnobRef("b", CPU_QUOTA): 10_000}, tree)
    assert admitted == {KnobRef("b", CPU_QUOTA): 10_000}
    assert [str(each) for each in refused] == ["a cpu.quota: 10 is less than 1000"]


def test_validate_clips_memory_protection_to_the_parent() -> None:
    tree = Tree(CgroupVersion.V2, {("pod", MEMORY_MIN): 100, ("pod/c", MEMORY_MAX): 1 << 30})
    admitted, _ = validate_values({KnobRef("pod/c", MEMORY_MIN): 1000}, tree)
    assert admitted == {KnobRef("pod/c", MEMORY_MIN): 100}
    admitted, _ = validate_values(
        {KnobRef("pod/c", MEMORY_MIN): 1000, KnobRef("pod", MEMORY_MIN): 5000}, tree
    )
    assert admitted[KnobRef("pod/c", MEMORY_MIN)] == 1000


# Random requests

PATHS = ("k", "k/be", "k/be/p", "k/be/p/c", "k/be/q", "k/ls")
numbers = st.one_of(st.just(UNLIMITED), st.integers(500, 200_000))
cpusets = st.frozensets(st.integers(0, 5), min_size=1)
amounts = st.integers(0, 1 << 30)


def _values(knob: Knob[Any]) -> st.SearchStrategy[Value]:
    by_knob: dict[Knob[Any], st.SearchStrategy[Any]] = {
        CPUSET_CPUS: cpusets,
        CPU_QUOTA: numbers,
        CPU_BURST: st.integers(0, 200_000),
        MEMORY_MIN: amounts,
        MEMORY_LOW: amounts,
    }
    return by_knob[knob]


@st.composite
def random_request(draw: st.DrawFn) -> KnobRequest:
    knob: Knob[Any] = draw(st.sampled_from([CPUSET_CPUS, CPU_QUOTA, CPU_BURST, MEMORY_MIN, MEMORY_LOW]))
    return _request(
        knob,
        draw(_values(knob)),
        path=draw(st.sampled_from(PATHS)),
        strategy=draw(st.sampled_from("abcd")),
        bound=draw(st.sampled_from(BoundType)),
        precedence=draw(st.sampled_from(Precedence)),
    )


@st.composite
def some_tree(draw: st.DrawFn) -> Tree:
    """A tree that a kernel could hold: in v1 no child has more than its parent."""
    version = draw(st.sampled_from(CgroupVersion))
    cpus = {path: frozenset(range(6)) for path in PATHS}
    quota: dict[str, int] = dict.fromkeys(PATHS, UNLIMITED)
    for path in PATHS:
        above = path.rpartition("/")[0]
        if above:
            cpus[path] = draw(st.frozensets(st.sampled_from(sorted(cpus[above])), min_size=1))
            quota[path] = draw(st.one_of(st.just(UNLIMITED), st.integers(1000, 50_000)))
            if quota[above] != UNLIMITED and quota[path] != UNLIMITED:
                quota[path] = min(quota[path], quota[above])
    burst, most = draw(st.integers(0, 1000)), draw(st.one_of(st.just(UNLIMITED), amounts))
    values: dict[tuple[str, Knob[Any]], Value] = {}
    for path in PATHS:
        values[path, CPUSET_CPUS] = cpus[path]
        values[path, CPU_QUOTA] = quota[path]
        values[path, CPU_PERIOD] = 100_000
        values[path, CPU_BURST] = burst
        values[path, MEMORY_MAX] = most
        if version is CgroupVersion.V2:
            values[path, MEMORY_MIN] = values[path, MEMORY_LOW] = 0
    return Tree(version, values)


def _outcome(requests: list[KnobRequest], tree: Tree) -> tuple[dict[KnobRef, Value], list[str], list[str]]:
    decided, conflicts = resolve_requests(requests, tree.value)
    admitted, refused = validate_values(decided, tree)
    return admitted, [str(each) for each in conflicts], [str(each) for each in refused]


@given(requests=st.lists(random_request(), max_size=8), tree=some_tree(), seed=st.integers())
def test_resolve_does_not_depend_on_request_order(requests: list[KnobRequest], tree: Tree, seed: int) -> None:
    shuffled = random.Random(seed).sample(requests, len(requests))
    assert _outcome(requests, tree) == _outcome(shuffled, tree)


@given(requests=st.lists(random_request(), max_size=8), tree=some_tree())
def test_resolve_and_validate_produce_values_the_kernel_accepts(
    requests: list[KnobRequest], tree: Tree
) -> None:
    admitted, _, _ = _outcome(requests, tree)

    def final(path: str, knob: Knob[Any]) -> Any:
        return admitted.get(KnobRef(path, knob), tree.value(KnobRef(path, knob)))

    for ref, value in admitted.items():
        assert not ref.knob.find_problem(value)
    for path in PATHS:
        assert final(path, CPU_BURST) <= to_comparable(final(path, CPU_QUOTA))
        above = path.rpartition("/")[0]
        if above and tree.version is CgroupVersion.V1:
            assert final(path, CPUSET_CPUS) <= final(above, CPUSET_CPUS)
            if UNLIMITED not in (final(path, CPU_QUOTA), final(above, CPU_QUOTA)):
                assert final(path, CPU_QUOTA) <= final(above, CPU_QUOTA)
        for knob in (MEMORY_MIN, MEMORY_LOW):
            if above and KnobRef(path, knob) in admitted and final(above, knob) is not None:
                assert final(path, knob) <= final(above, knob)


def _fresh(ref: KnobRef) -> Value:
    """Return the kernel's initial value."""
    if ref.knob == CPUSET_CPUS:
        return frozenset(range(6))
    return UNLIMITED if ref.knob == CPU_QUOTA else 0


@given(requests=st.lists(random_request(), max_size=8))
def test_resolve_safety_requests_always_win(requests: list[KnobRequest]) -> None:
    decided, _ = resolve_requests(requests, _fresh)
    for ref, value in decided.items():
        safe = [
            request for request in requests if request.ref == ref and request.precedence is Precedence.SAFETY
        ]
        bounds = [request for request in safe if request.bound is BoundType.AT_MOST]
        if ref.knob != CPUSET_CPUS:
            assert all(is_within(value, request.value) for request in bounds)
        elif len(bounds) == 1:
            assert is_within(value, bounds[0].value)
        if len(safe) == 1 and safe[0].bound is BoundType.EXACTLY:
            assert value == safe[0].value
        if len(safe) == 1 and safe[0].bound is BoundType.AT_LEAST:
            assert is_within(safe[0].value, value)


@given(requests=st.lists(random_request(), max_size=8))
def test_resolve_names_overruled_requests(requests: list[KnobRequest]) -> None:
    decided, conflicts = resolve_requests(requests, _fresh)
    overruled = {(each.ref, request) for each in conflicts for request in each.overruled}
    for request in requests:
        if request.bound is BoundType.EXACTLY and request.ref in decided:
            assert ((request.ref, request) in overruled) == (decided[request.ref] != request.value)
