"""Call the kernels of a shared library that was compiled when the image was built, without numba.

`trimtab.kernel_builder` writes the library, and beside it a list of its kernels with the types of their arguments. Each
kernel has an entry that takes its arguments as words of eight bytes: a scalar is one word, an array the address of its
data and a word for each dimension. All arrays are contiguous, because numba compiled the kernels for those.
"""

from __future__ import annotations

import ctypes
import hashlib
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from trimtab.errors import TrimtabError

LIBRARY_FILE, LIST_FILE = "kernels.so", "kernels.json"
START, RELEASE = "start_memory", "release_memory"
"""The functions that begin the use of the library, and that free an array that a kernel returned."""
PACKAGE = Path(__file__).parent

Kind = str | list[Any]
"""The type of an argument or a result: a scalar such as `f8`, an array such as `f8:2` (`f8:2r` if it is only read), or the
kinds of a tuple's items."""
NOTHING = "none"
_SCALARS = {"f4": "f", "f8": "d", "b1": "?"} | {
    f"{sign}{size}": code.upper() if sign == "u" else code
    for sign in "iu"
    for size, code in ((1, "b"), (2, "h"), (4, "i"), (8, "q"))
}
"""The format of each scalar in a result."""
_BOOLEANS, _INTEGERS, _FLOATS = (bool, np.bool_), (int, np.integer), (float, int, np.integer)


class KernelEntry(msgspec.Struct, frozen=True):
    """A kernel of the library, for arguments of these types."""

    name: str
    symbol: str
    arguments: list[Kind]
    result: Kind
    releases_gil: bool


class KernelList(msgspec.Struct, frozen=True):
    """The content of a library."""

    sources: dict[str, str]
    """The digest of each source file, by its path in the package."""
    entries: list[KernelEntry]


class DifferentTypes(Exception):
    """The arguments have other types than those that the kernel was compiled for."""


class CompiledKernel:
    """A kernel of a loaded library."""

    def __init__(self, library: ctypes.CDLL, entry: KernelEntry) -> None:
        self._entry = entry
        self._call = library[entry.symbol]
        self._call.restype, self._call.argtypes = ctypes.c_int, (ctypes.c_char_p, ctypes.c_void_p)
        self._release = library[RELEASE]
        self._release.argtypes = (ctypes.c_void_p,)
        self._words = struct.Struct("".join(map(_word_format, entry.arguments)))
        self._pack: Callable[[Any, list[Any]], None] = _tuple_packer(entry.arguments)
        self._result = struct.Struct("@" + _result_format(entry.result))
        self._read: Callable[[Any], Any] = (
            self._read_array if _is_array(entry.result) else _read_scalars(entry.result)
        )

    def __call__(self, arguments: tuple[Any, ...]) -> Any:
        """Call the kernel; raise `DifferentTypes` if it was compiled for other arguments."""
        words: list[Any] = []
        self._pack(arguments, words)
        try:
            packed = self._words.pack(*words)
        except struct.error:  # an integer of more than 64 bits
            raise DifferentTypes from None
        result = ctypes.create_string_buffer(self._result.size + 1)
        status = self._call(packed, result)
        if status not in {_OK, _RETURNED_NONE}:
            raise RuntimeError(f"the compiled kernel {self._entry.name} failed with status {status}")
        return self._read(self._result.unpack_from(result))

    def _read_array(self, found: tuple[Any, ...]) -> Any:
        """Copy an array that the kernel allocated, and free it."""
        owner, _, _, _, data, *shape_and_strides = found
        dtype, dimensions, _ = _split_array(str(self._entry.result))
        array = np.empty(shape_and_strides[:dimensions], dtype)
        ctypes.memmove(array.ctypes.data, data, array.nbytes)
        self._release(owner)
        return array


_OK, _RETURNED_NONE = 0, -2
"""The codes of numba's calling convention for a call without an error."""


class KernelLibrary:
    """The loaded library: its kernels by name, one for each combination of types."""

    def __init__(self, folder: Path) -> None:
        content = msgspec.json.decode((folder / LIST_FILE).read_bytes(), type=KernelList)
        changed = [path for path, digest in content.sources.items() if digest_source(path) != digest]
        if changed:
            raise TrimtabError(
                f"{folder}: the kernels were compiled from another version of {', '.join(changed)}"
            )
        path = str(folder / LIBRARY_FILE)
        # A kernel that releases the interpreter's lock is called as a foreign function, any other as one of Python's.
        foreign, own = ctypes.CDLL(path), ctypes.PyDLL(path)
        own[START]()
        self._kernels: dict[str, list[CompiledKernel]] = {}
        for entry in content.entries:
            kernel = CompiledKernel(foreign if entry.releases_gil else own, entry)
            self._kernels.setdefault(entry.name, []).append(kernel)

    def find_kernels(self, name: str) -> tuple[CompiledKernel, ...]:
        """Return a kernel's variants, one for each combination of types."""
        return tuple(self._kernels.get(name, ()))


def digest_source(path: str) -> str:
    """Return the digest of a source file of the package."""
    return hashlib.sha256((PACKAGE / path).read_bytes()).hexdigest()


def _is_array(kind: Kind) -> bool:
    return ":" in kind


def _split_array(kind: str) -> tuple[np.dtype[Any], int, bool]:
    """Return the element type, the number of dimensions, and whether the array is written to."""
    element, _, shape = kind.partition(":")
    return np.dtype(element), int(shape.rstrip("r")), not shape.endswith("r")


def _word_format(kind: Kind) -> str:
    if isinstance(kind, list):
        return "".join(map(_word_format, kind))
    if _is_array(kind):
        return "Q" + "q" * _split_array(kind)[1]
    return "d" if kind == "f8" else "Q" if kind.startswith("u") else "q"


def _result_format(kind: Kind) -> str:
    if isinstance(kind, list):
        return "".join(map(_result_format, kind))
    if _is_array(kind):
        return "PPqqP" + "qq" * _split_array(kind)[1]
    return "" if kind == NOTHING else _SCALARS[kind]


def _read_scalars(kind: Kind) -> Callable[[Any], Any]:
    if isinstance(kind, list):
        return tuple
    return lambda found: found[0] if found else None


def _packer(kind: Kind) -> Callable[[Any, list[Any]], None]:
    """Return the function that appends the words of an argument, or raises `DifferentTypes`."""
    if isinstance(kind, list):
        return _tuple_packer(kind)
    if _is_array(kind):
        return _array_packer(*_split_array(kind))
    accepted = {"f": _FLOATS, "b": _BOOLEANS}.get(kind[0], _INTEGERS)

    def pack(value: Any, words: list[Any]) -> None:
        if not isinstance(value, accepted):
            raise DifferentTypes
        words.append(int(value) if accepted is _BOOLEANS else value)  # numpy's booleans are no integers

    return pack


def _tuple_packer(kinds: list[Kind]) -> Callable[[Any, list[Any]], None]:
    packers = [_packer(kind) for kind in kinds]

    def pack(value: Any, words: list[Any]) -> None:
        if not isinstance(value, tuple) or len(value) != len(packers):
            raise DifferentTypes
        for packer, item in zip(packers, value, strict=True):
            packer(item, words)

    return pack


def _array_packer(dtype: np.dtype[Any], dimensions: int, written: bool) -> Callable[[Any, list[Any]], None]:  # noqa: FBT001
    def pack(value: Any, words: list[Any]) -> None:
        if not isinstance(value, np.ndarray) or value.dtype != dtype or value.ndim != dimensions:
            raise DifferentTypes
        flags = value.flags
        if not (flags.carray if written else flags.c_contiguous and flags.aligned):
            raise DifferentTypes
        words.append(value.ctypes.data)
        words.extend(value.shape)

    return pack
