"""Start work before its test's turn, where the work is mostly waiting."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class Early(Generic[T]):
    """Runs from now on, in a thread of its own."""

    def __init__(self, pool: ThreadPoolExecutor, run: Callable[[], T]) -> None:
        self._run = run
        self._begun: Future[T] | None = pool.submit(run)

    def outcome(self) -> T:
        """Return the result. A second call, such as that of a rerun test, runs the work again."""
        begun, self._begun = self._begun, None
        return self._run() if begun is None else begun.result()


@contextmanager
def early(run: Callable[[], T]) -> Iterator[Early[T]]:
    """Begin at once; at the end it is over."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        yield Early(pool, run)
