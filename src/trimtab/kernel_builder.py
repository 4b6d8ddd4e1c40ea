"""Compile kernels ahead of time: link the machine code that numba made of them into a shared library.

numba keeps each kernel as an LLVM module. This writes all of them as object files, adds an entry for each that unpacks
its arguments (see `trimtab.kernel_library`) and numba's memory manager, which kernels that create arrays call, and
links them with the system's compiler.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm  # type: ignore[import-untyped]
import msgspec
import numba
from llvmlite import ir
from numba.core import ir as numba_ir
from numba.core import types as numba_types
from numba.core.compiler import run_frontend

from trimtab.errors import TrimtabError
from trimtab.kernel_library import (
    LIBRARY_FILE,
    LIST_FILE,
    NOTHING,
    PACKAGE,
    RELEASE,
    START,
    KernelEntry,
    KernelList,
    Kind,
    digest_source,
)

types: Any = numba_types  # the attributes of its classes are not declared
_WORD, _BYTE, _STATUS = ir.IntType(64), ir.IntType(8), ir.IntType(32)
_RUNTIME = Path(numba.__file__).parent / "core" / "runtime" / "nrt.cpp"
_PASSING = frozenset({"cast", "getattr", "getitem", "static_getitem"})
"""The operations whose result may be the same array, or a part of it."""
_COMPILER = ("c++", "-shared", "-fPIC", "-O2", "-fno-exceptions", "-fno-rtti")


def build_library(folder: Path, dispatchers: Mapping[str, Any]) -> int:
    """Write the library with every kernel that was called, and return the number of its entries."""
    machine = llvm.Target.from_default_triple().create_target_machine(opt=3, reloc="pic", codemodel="default")
    entries: list[KernelEntry] = []
    unpacking = ir.Module("entries")
    unpacking.triple, unpacking.data_layout = machine.triple, str(machine.target_data)
    with tempfile.TemporaryDirectory() as made:
        for name, compiled in _compiled_kernels(dispatchers):
            entry = _describe(
                name, compiled, f"kernel_{len(entries)}", releases_gil=_releases_gil(dispatchers[name])
            )
            if entry is None:
                continue
            if problem := _result_problem(entry.result, dispatchers[name]):
                raise TrimtabError(f"kernel {name} returns {problem}: return one new array, or scalars")
            (Path(made) / f"{entry.symbol}.o").write_bytes(
                machine.emit_object(_extract_code(compiled, machine))
            )
            _add_entry(unpacking, entry, compiled)
            entries.append(entry)
        _export(unpacking, START, "NRT_MemSys_init", ())
        _export(unpacking, RELEASE, "NRT_MemInfo_release", (_BYTE.as_pointer(),))
        (Path(made) / "entries.o").write_bytes(machine.emit_object(llvm.parse_assembly(str(unpacking))))
        folder.mkdir(parents=True, exist_ok=True)
        objects = sorted(Path(made).glob("*.o"))
        command = [*_COMPILER, "-o", str(folder / LIBRARY_FILE), str(_RUNTIME), *map(str, objects), "-lm"]
        linked = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own arguments
    if linked.returncode:
        raise TrimtabError(f"the kernels cannot be linked: {linked.stderr.strip()}")
    sources = {os.path.relpath(each.py_func.__code__.co_filename, PACKAGE) for each in dispatchers.values()}
    content = KernelList({path: digest_source(path) for path in sorted(sources)}, entries)
    (folder / LIST_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(content)))
    return len(entries)


def _compiled_kernels(dispatchers: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, dispatcher in sorted(dispatchers.items()):
        for compiled in dispatcher.overloads.values():
            yield name, compiled


def _releases_gil(dispatcher: Any) -> bool:
    return bool(dispatcher.targetoptions.get("nogil"))


def _describe(name: str, compiled: Any, symbol: str, *, releases_gil: bool) -> KernelEntry | None:
    """Return the entry of a compiled kernel; None for types that only other kernels pass."""
    arguments = [_to_kind(each) for each in compiled.fndesc.argtypes]
    result = _to_kind(compiled.fndesc.restype)
    known = [each for each in arguments if each is not None]
    if result is None or len(known) < len(arguments):
        return None
    return KernelEntry(name, symbol, known, result, releases_gil)


def _result_problem(result: Kind, dispatcher: Any) -> str:
    """Return which arrays in the result of a kernel cannot be read; empty if all can.

    An array of the caller has no owner in the library that could be released.
    """
    if isinstance(result, list):
        return "a tuple with an array" if ":" in str(result) else ""
    return "an array of its arguments" if ":" in result and _returns_argument(dispatcher) else ""


def _returns_argument(dispatcher: Any) -> bool:
    """Return whether a kernel returns an argument, or a part of one."""
    code: Any = run_frontend(dispatcher.py_func)  # type: ignore[no-untyped-call]
    open_values = [each.value for block in code.blocks.values() for each in block.find_insts(numba_ir.Return)]
    seen: set[Any] = set()
    while open_values:
        value = open_values.pop()
        if isinstance(value, numba_ir.Arg):
            return True
        if isinstance(value, numba_ir.Var) and value.name not in seen:
            seen.add(value.name)
            open_values += code._definitions[value.name]  # noqa: SLF001 - numba offers no other way
        elif isinstance(value, numba_ir.Expr) and value.op in _PASSING:
            open_values.append(value.value)
    return False


def _to_kind(declared: Any) -> Kind | None:
    if isinstance(declared, types.NoneType):
        return NOTHING
    if isinstance(declared, types.Literal | types.Omitted):
        return None
    if isinstance(declared, types.BaseTuple):
        items = [_to_kind(each) for each in declared]
        known = [each for each in items if each is not None]
        return known if len(known) == len(items) else None
    if isinstance(declared, types.Array):
        element = _to_scalar_kind(declared.dtype)
        if element is None or declared.layout != "C" or not declared.aligned:
            return None
        return f"{element}:{declared.ndim}{'' if declared.mutable else 'r'}"
    kind = _to_scalar_kind(declared)
    return None if kind == "f4" else kind  # no kernel takes one, and Python has none


def _to_scalar_kind(declared: Any) -> str | None:
    if isinstance(declared, types.Boolean):
        return "b1"
    if isinstance(declared, types.Integer):
        return f"{'i' if declared.signed else 'u'}{declared.bitwidth // 8}"
    return f"f{declared.bitwidth // 8}" if isinstance(declared, types.Float) else None


def _extract_code(compiled: Any, machine: Any) -> Any:
    """Return the module of a kernel with nothing but the kernel and what it calls: no wrapper for Python."""
    # numba offers its modules to its own linker only.
    module = compiled.library._get_module_for_linking().clone()  # noqa: SLF001
    for each in module.global_variables:
        if each.name.startswith("numba.dynamic.globals"):
            raise TrimtabError(f"{compiled.fndesc.qualname}: the kernel holds the address of an array")
    for function in module.functions:
        if not function.is_declaration:
            wanted = function.name == compiled.fndesc.llvm_func_name
            function.linkage = "weak_odr" if wanted else "internal"
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=0)))
    return module


def _add_entry(module: Any, entry: KernelEntry, compiled: Any) -> None:
    """Add a function that calls the kernel with arguments from words."""
    convention = compiled.target_context.call_conv
    signature = convention.get_function_type(compiled.fndesc.restype, compiled.fndesc.argtypes)
    native = ir.Function(module, signature, compiled.fndesc.llvm_func_name)
    pointers = [_WORD.as_pointer(), _BYTE.as_pointer()]
    function = ir.Function(module, ir.FunctionType(_STATUS, pointers), entry.symbol)
    words, result = function.args
    builder = ir.IRBuilder(function.append_basic_block())
    unpacker = _Unpacker(builder, words, iter(signature.args[2:]))
    given = [value for kind in entry.arguments for value in unpacker.unpack(kind)]
    place = builder.bitcast(result, signature.args[0])
    error = builder.alloca(signature.args[1].pointee)
    builder.ret(builder.call(native, [place, error, *given]))


def _export(module: Any, name: str, hidden: str, arguments: Sequence[Any]) -> None:
    """Add a function that calls one of numba's memory manager, whose own are hidden in the library."""
    signature = ir.FunctionType(ir.VoidType(), arguments)
    function = ir.Function(module, signature, name)
    builder = ir.IRBuilder(function.append_basic_block())
    builder.call(ir.Function(module, signature, hidden), function.args)
    builder.ret_void()


class _Unpacker:
    """Generate the code that reads arguments from words."""

    def __init__(self, builder: Any, words: Any, expected: Iterator[Any]) -> None:
        self._builder = builder
        self._words = words
        self._expected = expected
        self._position = 0

    def unpack(self, kind: Kind) -> Iterator[Any]:
        """Yield the values of an argument as numba passes them."""
        if isinstance(kind, list):
            for each in kind:
                yield from self.unpack(each)
        elif ":" in kind:
            yield from self._unpack_array(kind)
        else:
            yield self._convert(self._next_word())

    def _unpack_array(self, kind: str) -> Iterator[Any]:
        """Yield no owner and no parent, the number of elements, their size, their address, the shape and the strides."""
        element, _, shape = kind.partition(":")
        builder, size = self._builder, ir.Constant(_WORD, int(element[1:]))
        data = self._next_word()
        lengths = [self._next_word() for _ in range(int(shape.rstrip("r")))]
        strides = [size]
        for length in reversed(lengths):
            strides.append(builder.mul(strides[-1], length))
        items = builder.sdiv(strides.pop(), size)
        for value in (
            ir.Constant(_WORD, 0),
            ir.Constant(_WORD, 0),
            items,
            size,
            data,
            *lengths,
            *reversed(strides),
        ):
            yield self._convert(value)

    def _next_word(self) -> Any:
        place = self._builder.gep(self._words, [ir.Constant(_WORD, self._position)])
        self._position += 1
        return self._builder.load(place)

    def _convert(self, word: Any) -> Any:
        expected = next(self._expected)
        if isinstance(expected, ir.PointerType):
            return self._builder.inttoptr(word, expected)
        if isinstance(expected, ir.IntType):
            return word if expected.width == _WORD.width else self._builder.trunc(word, expected)
        return self._builder.bitcast(word, expected)
