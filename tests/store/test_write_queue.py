"""Records that wait to be written."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.store.errors import RecordError, StoreError
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


async def test_queue_reports_the_records_that_the_store_has() -> None:
    class Failing(_Repository):
        error: Exception | None = StoreError("unavailable")

        async def append(self, records: Sequence[int]) -> None:
            if self.error:
                raise self.error

    repository, written = Failing(), list[int]()
    queue = WriteQueue[int]("history", repository, max_waiting=3, on_written=written.extend)
    queue.put([1])
    assert not await queue.flush()
    assert written == []
    repository.error = None
    assert await queue.flush()
    assert written == [1]
    repository.error = RecordError("never")
    queue.put([2])
    assert await queue.flush()
    assert written == [1]
