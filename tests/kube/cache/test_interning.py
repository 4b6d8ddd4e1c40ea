"""Equal values are kept once, and not for longer than somebody uses them."""

from trimtab.kube.cache.interning import InternTable, Memo


def test_equal_values_become_one() -> None:
    intern = InternTable()
    first, second = ("app", "web" + str(1)), ("app", "web" + str(1))
    assert first is not second
    assert intern[first] is intern[second]


def test_interning_drops_values_that_are_no_longer_used() -> None:
    intern = InternTable()
    used = [intern[(f"pod-{number}", (f"label-{number}",))] for number in range(100)]
    for number in range(100_000):
        intern[(f"passing-{number}", number)]
    assert len(intern) <= 2 * 4096 + 1
    assert all(intern[(f"pod-{number}", (f"label-{number}",))] is used[number] for number in range(100))


def test_interning_drops_values_held_only_by_a_dropped_value() -> None:
    intern = InternTable()
    for number in range(20_000):
        intern[(intern[f"inner-{number}"],)]
    assert len(intern) <= 2 * 4096 + 1


def test_memo_calls_its_function_once_for_equal_arguments() -> None:
    asked: list[bytes] = []

    def parse(raw: bytes) -> int:
        asked.append(raw)
        return int(raw)

    memo = Memo(parse)
    assert [memo[b"7"], memo[b"7"], memo[b"8"]] == [7, 7, 8]
    assert asked == [b"7", b"8"]


def test_memo_limits_its_size() -> None:
    memo: Memo[int, int] = Memo(lambda number: number)
    for number in range(10 * Memo.LIMIT):
        assert memo[number] == number
    assert len(memo) <= Memo.LIMIT
