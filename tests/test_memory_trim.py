"""What was taken for a moment is given back to the system."""

import pytest

from trimtab.memory_trim import limit_allocator_arenas, release_compiler_memory


def test_another_library_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    limit_allocator_arenas()
    release_compiler_memory()
