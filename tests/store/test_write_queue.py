"""Records that wait to be written."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.store.write_queue import WriteQueue


class _Repository:
    def __init__(self) -> None:
        self.appended: list[list[int]] = []

    async def append(self, records: Sequence[int]) -> None:
        self.appended.append(list(records))


async def test_queue_writes_waiting_records_at_once_and_drops_the_oldest_beyond_its_limit() -> None:
    repository = _Repository()
    queue = WriteQueue[int]("history", repository, max_waiting=3)
    queue.put([1, 2])
    queue.put([])
    queue.put(range(3, 6))
    assert await queue.flush()
    assert await queue.flush()
    assert repository.appended == [[3, 4, 5]]
