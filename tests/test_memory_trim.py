"""Memory used for a moment is returned to the system."""

import pytest

from trimtab.memory_trim import limit_allocator_arenas, release_compiler_memory


def test_memory_trim_leaves_another_library_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    limit_allocator_arenas()
    release_compiler_memory()
