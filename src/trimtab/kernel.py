"""Define kernels: functions that are called as machine code, from a shipped library or compiled by numba.

numba and LLVM take 80 MiB and half a second of CPU, even if all they do is to read kernels that were compiled before.
So an image's build compiles all kernels into one library (`trimtab.kernel_builder`), and a process that
`KERNEL_LIBRARY_DIR` names it to calls the same machine code without them. Elsewhere numba compiles a kernel when it is
first called, and keeps it in its cache. Either way, a kernel is defined once, as a Python function.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache, cached_property
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

import msgspec
import structlog

from trimtab.errors import TrimtabError
from trimtab.kernel_library import CompiledKernel, DifferentTypes, KernelLibrary

log = structlog.get_logger(__name__)

FOLDER = "KERNEL_LIBRARY_DIR"
"""The environment variable that names the folder of the shipped library."""
DISPATCHERS: dict[str, Any] = {}
"""The kernels of imported modules that numba compiles, by name; from these a library is built."""
_Function = TypeVar("_Function", bound=Callable[..., Any])


@cache
def shipped_library() -> KernelLibrary | None:
    """Load the shipped library; return None where there is none, or none that fits."""
    folder = os.environ.get(FOLDER)
    if not folder:
        return None
    try:
        return KernelLibrary(Path(folder))
    except (OSError, AttributeError, msgspec.MsgspecError, TrimtabError) as error:
        # Compiling takes time and memory, but the results are the same.
        log.warning(
            "the shipped kernels cannot be loaded, so they are compiled in this process", error=str(error)
        )
        return None


def kernel(**options: Any) -> Callable[[_Function], _Function]:
    """Make a function a kernel, with numba's options."""

    def decorate(function: Any) -> Any:
        library, name = shipped_library(), f"{function.__module__}.{function.__qualname__}"
        if library is not None:
            return ShippedKernel(function, library.find_kernels(name), options)
        found = DISPATCHERS[name] = _compile(function, options)
        return found

    return decorate


def intrinsic(define: Any) -> Any:
    """Make a function that generates code, such as numba's intrinsics, callable by kernels."""
    return ShippedIntrinsic(define) if shipped_library() is not None else _make_intrinsic(define)


class ShippedKernel:
    """A kernel of the library. For arguments that it was not compiled for, numba compiles it after all."""

    def __init__(self, function: Any, variants: tuple[CompiledKernel, ...], options: dict[str, Any]) -> None:
        self.__wrapped__ = function
        self._variants = variants
        self._options = options

    def __call__(self, *arguments: Any) -> Any:
        for variant in self._variants:
            try:
                return variant(arguments)
            except DifferentTypes:
                continue
        return self.compiled(*arguments)

    @cached_property
    def compiled(self) -> Any:
        """The kernel as numba compiles it, which calls other kernels in the same form."""
        function = self.__wrapped__
        log.info(
            "a kernel is compiled for types that the shipped library does not have",
            kernel=function.__qualname__,
        )
        names = {
            name: value.compiled if isinstance(value, ShippedKernel | ShippedIntrinsic) else value
            for name, value in function.__globals__.items()
            if name in function.__code__.co_names
        }
        own = FunctionType(function.__code__, {**function.__globals__, **names}, function.__name__)
        own.__qualname__ = function.__qualname__
        return _compile(own, self._options)


class ShippedIntrinsic:
    """An intrinsic that is only needed if numba compiles a kernel that calls it."""

    def __init__(self, define: Any) -> None:
        self._define = define

    @cached_property
    def compiled(self) -> Any:
        return _make_intrinsic(self._define)


def _compile(function: Any, options: dict[str, Any]) -> Any:
    # Imported here, because a process with a shipped library does without numba.
    from numba import njit

    return njit(cache=True, **options)(function)


def _make_intrinsic(define: Any) -> Any:
    from numba.extending import intrinsic as make_intrinsic

    return make_intrinsic(define)
