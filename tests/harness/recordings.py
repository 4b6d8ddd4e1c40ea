"""Keep the answers of other programs in files, so that tests which compare with them start no process.

`make recordings` asks the real programs and writes the files again. tests/integration asks them again and compares, so that
a recording cannot differ from its program unnoticed.
"""

import json
import lzma
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

RECORD = "TEST_RECORD"
"""With this variable the real programs answer, and their answers are kept, unless its value is `LIVE`."""
LIVE = "live"


def is_recording() -> bool:
    return bool(os.environ.get(RECORD))


class Recording:
    """The answers of one file by their questions; as a context manager it is written at the end if they are new."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._answers: dict[str, Any] = {}
        if not is_recording() and file.exists():
            self._answers = json.loads(lzma.decompress(file.read_bytes()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if is_recording() and os.environ[RECORD] != LIVE:
            text = json.dumps(self._answers, sort_keys=True, separators=(",", ":"))
            self.file.parent.mkdir(exist_ok=True)
            self.file.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))

    def __iter__(self) -> Iterator[str]:
        return iter(self._answers)

    def keep(self, question: str, answer: Any) -> None:
        self._answers[question] = answer

    def find(self, question: str) -> Any:
        """Return the answer that was kept; a question that is not among them is a failure of the test."""
        if question not in self._answers:
            raise LookupError(
                f"{self.file.name} has no answer to this question; if it is new, run `make recordings`: "
                f"{question[:500]}"
            )
        return self._answers[question]
