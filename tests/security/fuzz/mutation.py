"""Mutate seeds into hostile inputs: bytes, JSON trees and words of a language. Deterministic for one generator."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

MAX_INPUT_BYTES = 64 << 10
INTERESTING_TEXTS = (
    b"",
    b"\x00",
    b"\n---\n",
    b"\r\n",
    b"\x1b[2J",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    "\u2028".encode(),
    "\u202e".encode(),
    "é\U0001f600".encode(),
    "٣".encode(),
    b"NaN",
    b"-1",
    b"1e999",
    b"1e-999",
    b"9223372036854775808",
    b"-9223372036854775809",
    b"9" * 400,
    b"0.1",
    b"null",
    b"true",
    b"../../etc/passwd",
    b"%s%n{0}",
    b"$(id)",
    b"a" * 300,
)
INTERESTING_VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    2**31,
    2**63,
    2**64,
    10**40,
    0.1,
    -0.0,
    1e308,
    1e-308,
    "",
    "\x00",
    "a\nb",
    "1e2147483647",
    "-1",
    "NaN",
    "inf",
    "9" * 300,
    "é\u2028\u202e\x1b[2J",
    "x" * 5000,
    [],
    {},
    [[]],
    [None],
    {"": None},
)
_CONTROL_BYTES = bytes((*range(32), 127, 128, 255))
_OPENINGS = (
    b"(",
    b"[",
    b"{",
    b'{"a":',
    b"- ",
    b"-",
    b"[[",
    b"<",
    b"\\",
    b"&a [*a,",
    b"*",
    b"\x0a\xff\x01",
    b"!",
)

Mutator = Callable[[random.Random, bytes, Sequence[bytes]], bytes]


def mutate(
    rng: random.Random, corpus: Sequence[bytes], tokens: Sequence[bytes], *, json_share: float = 0.5
) -> bytes:
    """Return a mutated entry of the corpus: a few small changes, or some in the structure of a JSON document."""
    data = rng.choice(corpus)
    if rng.random() < json_share and (changed := mutate_json(rng, data)) is not None:
        return changed[:MAX_INPUT_BYTES]
    for _ in range(rng.choice((1, 1, 2, 3, 5, 8))):
        data = rng.choice(_MUTATORS)(rng, data, (*tokens, rng.choice(corpus)))
    return data[:MAX_INPUT_BYTES]


def mutate_json(rng: random.Random, data: bytes) -> bytes | None:
    """Replace, remove, repeat or nest a value of a JSON document; None for other inputs."""
    try:
        tree = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(tree, dict | list) or not tree:
        return None
    for _ in range(rng.choice((1, 1, 2, 3))):
        tree = _mutate_tree(rng, tree)
    try:
        encoded = msgspec.json.encode(tree)
    except (ValueError, RecursionError):
        return None
    if rng.random() < 0.05:  # no encoder of ours nests this deep
        depth = rng.choice((100, 600, 3000))
        encoded = encoded.replace(b"null", b"[" * depth + b"]" * depth, 1)
    return encoded


def _mutate_tree(rng: random.Random, tree: Any) -> Any:
    places = list(_find_places(tree))
    if not places:
        return tree
    parent, key = rng.choice(places)
    value = parent[key]
    if isinstance(value, str) and value.startswith("{") and rng.random() < 0.8:
        parent[key] = _mutate_text(rng, value)
        return tree
    match rng.randrange(7):
        case 0:
            parent[key] = copy.deepcopy(rng.choice(INTERESTING_VALUES))
        case 1:
            del parent[key]
        case 2:
            parent[key] = [value] * rng.choice((1, 2, 50))
        case 3:
            parent[key] = {rng.choice(("", "a", "\x00", "metadata")): value}
        case 4 if isinstance(value, str):
            parent[key] = _mutate_text(rng, value)
        case 5 if isinstance(parent, dict):
            parent[rng.choice(("unknown", "", "é" * 50, key.upper()))] = value
        case _:
            parent[key] = None
    return tree


def _find_places(tree: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    waiting = [tree]
    while waiting and len(found) < 2000:
        each = waiting.pop()
        items = each.items() if isinstance(each, dict) else enumerate(each) if isinstance(each, list) else ()
        for key, value in items:
            found.append((each, key))
            waiting.append(value)
    return found


def _mutate_text(rng: random.Random, text: str) -> str:
    changed = text.encode()
    # Annotations often hold JSON.
    if rng.random() < 0.8 and (inner := mutate_json(rng, changed)) is not None:
        return inner.decode(errors="replace")
    for _ in range(rng.choice((1, 2, 4))):
        changed = rng.choice(_MUTATORS)(rng, changed, (b"m", b"Gi", b"e9", b" ", b"\n"))
    return changed.decode(errors="replace")


def _flip_bits(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    changed = bytearray(data or b"\x00")
    for _flip in range(rng.choice((1, 1, 4))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _replace_byte(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + bytes([rng.choice(_CONTROL_BYTES)]) + data[at + 1 :]


def _insert_token(rng: random.Random, data: bytes, tokens: Sequence[bytes]) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice((*tokens, *tokens, *INTERESTING_TEXTS)) + data[at:]


def _replace_with_token(rng: random.Random, data: bytes, tokens: Sequence[bytes]) -> bytes:
    start, end = _choose_span(rng, data)
    return data[:start] + rng.choice((*tokens, *INTERESTING_TEXTS)) + data[end:]


def _delete_span(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    start, end = _choose_span(rng, data)
    return data[:start] + data[end:]


def _repeat_span(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    start, end = _choose_span(rng, data)
    count = rng.choice((2, 3, 10, 100, 1000))
    return data[:start] + data[start:end] * min(count, 1 + MAX_INPUT_BYTES // (end - start + 1)) + data[end:]


def _nest(rng: random.Random, data: bytes, tokens: Sequence[bytes]) -> bytes:
    """Open brackets, calls or fields many times, which parsers may follow recursively."""
    opening = rng.choice((*_OPENINGS, *(token for token in tokens if token and token[-1:] in b"([{<:")))
    at, count = rng.randrange(len(data) + 1), rng.choice((2, 40, 200, 2000, 12_000))
    closing = opening.translate(bytes.maketrans(b"([{<", b")]}>"))[-1:] * count
    return (
        data[:at]
        + opening * min(count, MAX_INPUT_BYTES // len(opening))
        + (closing if rng.random() < 0.7 else b"")
        + data[at:]
    )


def _truncate(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _splice(rng: random.Random, data: bytes, tokens: Sequence[bytes]) -> bytes:
    other = tokens[-1]
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


def _change_number(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """Replace an unsigned big-endian or little-endian number, such as a length."""
    width = rng.choice((1, 2, 4, 8))
    if len(data) < width:
        return data
    at = rng.randrange(len(data) - width + 1)
    largest = 256**width
    value = rng.choice(
        (0, 1, largest - 1, largest // 2, largest // 2 - 1, len(data) % largest, rng.randrange(largest))
    )
    return data[:at] + value.to_bytes(width, rng.choice(("big", "little"))) + data[at + width :]


def _choose_span(rng: random.Random, data: bytes) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + rng.choice((1, 2, 4, 16, 64)))


_MUTATORS: tuple[Mutator, ...] = (
    _flip_bits,
    _replace_byte,
    _insert_token,
    _insert_token,
    _replace_with_token,
    _delete_span,
    _repeat_span,
    _nest,
    _truncate,
    _splice,
    _change_number,
)
