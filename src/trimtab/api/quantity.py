"""Quantities exactly as Kubernetes reads and writes them: `100m`, `1.5Gi`, `1e3`; and amounts as text for users.

Every number of CPUs or bytes that a cluster states is such a text, and Go's `resource.Quantity` decides what
it means, so this follows Go, oddities included: values finer than a nano are rounded up, binary ones are
capped at an int64, a suffix alone is zero. Left out: arithmetic (the sizing core works on plain numbers) and
three accidents of Go's: a number of more than 999E printed without its suffix, a whole value past an int64
that wraps around (ours stays at the end of the range), and a few negative fractions rounded towards zero.

Users see amounts in three forms:

| form | example | where |
|---|---|---|
| exact | `2`, `1500m`, `1536Mi` | manifests, statuses, JSON: Kubernetes' canonical form |
| step | `2000m`, `1536Mi`, `0.5Mi` | explanations: one unit, so that the sides of `2000m -> 500m` compare at a glance |
| short | `1.5`, `250m`, `12.5Gi` | tables and pages: at most three digits that matter |
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, ROUND_UP, Context, Decimal
from enum import StrEnum
from functools import lru_cache, total_ordering
from typing import TYPE_CHECKING, Any, Literal

from pydantic_core import CoreSchema, core_schema

from trimtab.api.errors import QuantityError, quote

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler


ResourceName = Literal["cpu", "memory"]

MIB, GIB = 2**20, 2**30


class QuantityFormat(StrEnum):
    """The suffixes that a quantity was written with, and is formatted with again."""

    DECIMAL_SI = "DecimalSI"
    BINARY_SI = "BinarySI"
    DECIMAL_EXPONENT = "DecimalExponent"


_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN, rounding=ROUND_UP)
_NANO = Decimal("1e-9")
_KIBI = 1024
_INT64_MAX = 2**63 - 1

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX = ["", *_BINARY]

_QUANTITY = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)")
_EXPONENT = re.compile(r"[eE]([+-]?)0*([0-9]{1,19})")
_ADVICE = "write it like 500m, 1.5Gi or 1e9"

# The pattern of a field: no sign and no bare suffix, which Go would accept but is never intended.
PATTERN = r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$"
MAX_LENGTH = 32
_FIELD = re.compile(PATTERN)


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    """An exact amount, and how it is written. Two are equal when their amounts are: `1` and `1000m`.

    >>> str(Quantity.parse("1.5Gi")), Quantity.parse("0.1").millicores
    ('1536Mi', 100)
    """

    amount: Decimal
    format: QuantityFormat = QuantityFormat.DECIMAL_SI

    @classmethod
    def parse(cls, text: str) -> Quantity:
        """Parse what Go accepts, and reject what it rejects."""
        shape = _QUANTITY.fullmatch(text)
        if not text or not shape:
            raise _make_parse_error(text)
        sign, whole, fraction, suffix = shape.groups(default="")
        power, exponent, written = _parse_suffix(text, suffix)
        digits = whole + fraction
        if not digits and (exponent < -9 or power > 40):
            raise QuantityError(f"quantity {quote(text)}: there is no number before the suffix; {_ADVICE}")
        amount = Decimal(f"{digits}e{exponent - len(fraction)}") if digits.strip("0") else Decimal(0)
        if power:
            amount = _EXACT.multiply(amount, Decimal(2**power))
        if amount and _decimal_exponent(amount) < -9:
            amount = _EXACT.quantize(amount, _NANO)
        if written is QuantityFormat.BINARY_SI:
            amount = min(amount, Decimal(_INT64_MAX))
            if 0 < amount < 1:
                written = QuantityFormat.DECIMAL_SI
        return cls(amount.copy_negate() if sign == "-" and amount else amount, written)

    @classmethod
    def from_millicores(cls, millicores: int) -> Quantity:
        """Convert millicores to a quantity: 1500 is `1500m`, 2000 is `2`."""
        return cls(_EXACT.scaleb(Decimal(millicores), -3))

    @classmethod
    def from_bytes(cls, count: int) -> Quantity:
        """Convert bytes to a quantity: 536870912 is `512Mi`."""
        return cls(Decimal(count), QuantityFormat.BINARY_SI)

    @property
    def millicores(self) -> int:
        """The amount in thousandths, rounded up as Go's MilliValue does, so that parsing never lowers a request."""
        return _to_int64(_EXACT.scaleb(self.amount, 3))

    @property
    def cores(self) -> float:
        return float(self.amount)

    @property
    def bytes(self) -> int:
        """The amount as a whole number, rounded up as Go's Value does."""
        return _to_int64(self.amount)

    def __str__(self) -> str:
        """Return the canonical form: no fraction, and the largest suffix that keeps the value exact."""
        if not self.amount:
            return "0"
        binary = self.format is QuantityFormat.BINARY_SI and self.amount.copy_abs() >= _KIBI
        if binary and self.amount == self.amount.to_integral_value():
            return _format_binary(int(self.amount))
        _, digits, tenth = _EXACT.normalize(self.amount).as_tuple()
        assert isinstance(tenth, int)  # parse rejects infinity
        exponent = tenth - tenth % 3
        if self.format is not QuantityFormat.DECIMAL_EXPONENT:
            exponent = min(exponent, 18)
        suffix = _DECIMAL_SUFFIX.get(exponent, "")
        if self.format is QuantityFormat.DECIMAL_EXPONENT and exponent:
            suffix = f"e{exponent}"
        sign = "-" if self.amount < 0 else ""
        return sign + "".join(map(str, digits)) + "0" * (tenth - exponent) + suffix

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return self.amount == other.amount if isinstance(other, Quantity) else NotImplemented

    def __lt__(self, other: Quantity) -> bool:
        return self.amount < other.amount

    def __hash__(self) -> int:
        return hash(self.amount)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            _validate_field, serialization=core_schema.to_string_ser_schema()
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "minimum": 0,
            "pattern": PATTERN,
            "maxLength": MAX_LENGTH,
        }


@lru_cache(maxsize=65_536)
def parse_millicores(text: str) -> int:
    """Parse CPU to millicores; cached, because a cluster of 200,000 pods has a few hundred different texts."""
    return Quantity.parse(text).millicores


@lru_cache(maxsize=65_536)
def parse_memory_bytes(text: str) -> int:
    """Parse memory to bytes; cached like `parse_millicores`."""
    return Quantity.parse(text).bytes


def _parse_suffix(text: str, suffix: str) -> tuple[int, int, QuantityFormat]:
    """Return the factor of a suffix as a power of two, a power of ten and the format it stands for."""
    if suffix in _DECIMAL:
        return 0, _DECIMAL[suffix], QuantityFormat.DECIMAL_SI
    if suffix in _BINARY:
        return _BINARY[suffix], 0, QuantityFormat.BINARY_SI
    exponent = _EXPONENT.fullmatch(suffix)
    if not exponent or int(exponent[2]) > _INT64_MAX:
        raise _make_parse_error(text)
    # Go keeps the low 32 bits, so a cluster may contain such a text.
    return 0, (int(exponent[1] + exponent[2]) + 2**31) % 2**32 - 2**31, QuantityFormat.DECIMAL_EXPONENT


def _make_parse_error(text: str) -> QuantityError:
    number, suffix = re.fullmatch(r"([+-]?[0-9.]*)(.*)", text, re.DOTALL).groups()  # type: ignore[union-attr]
    if not text:
        wrong = "is empty"
    elif number.count(".") > 1:
        wrong = f"{quote(number)} has more than one point"
    elif not any(map(str.isdigit, number)):
        wrong = "does not start with a number"
    elif suffix[:1] in {"e", "E"}:
        wrong = f"{quote(suffix)} is not an exponent"
    else:
        wrong = f"unknown suffix {quote(suffix)}"
    return QuantityError(f"quantity {quote(text)}: {wrong}; {_ADVICE}")


def _decimal_exponent(amount: Decimal) -> int:
    exponent = amount.as_tuple().exponent
    assert isinstance(exponent, int)  # never infinite
    return exponent


def _to_int64(amount: Decimal) -> int:
    if amount.adjusted() > 18:
        return _INT64_MAX if amount > 0 else -_INT64_MAX
    return max(-_INT64_MAX, min(_INT64_MAX, int(amount.to_integral_value(ROUND_UP))))


def _format_binary(count: int) -> str:
    power = 0
    while count % _KIBI == 0 and power + 1 < len(_BINARY_SUFFIX):
        count //= _KIBI
        power += 1
    return f"{count}{_BINARY_SUFFIX[power]}"


def _validate_field(value: object) -> Quantity:
    """Validate the value of a field, from a manifest or from our own code."""
    if isinstance(value, Quantity):
        return value
    if isinstance(value, float):
        raise QuantityError(f'quantity {value}: a fraction must be text; write it as "{value}"')
    if (
        isinstance(value, bool)
        or not isinstance(value, str | int)
        or (type(value) is int and value > _INT64_MAX)
    ):
        raise QuantityError(f"quantity must be text or a whole number; {_ADVICE}")
    text = str(value)
    parsed = Quantity.parse(text)
    if len(text) > MAX_LENGTH or not _FIELD.fullmatch(text):
        raise QuantityError(f"quantity {quote(text)}: must be a plain number that is not negative; {_ADVICE}")
    return parsed


UNSET = "none"
"""The text of an amount that is not set."""


@lru_cache(maxsize=65_536)
def format_exact(resource: ResourceName, amount: int | None) -> str:
    """Format millicores or bytes exactly, as Kubernetes writes them; cached like `parse_millicores`."""
    if amount is None:
        return UNSET
    return str(Quantity.from_millicores(amount) if resource == "cpu" else Quantity.from_bytes(amount))


def format_step(resource: ResourceName, amount: int | None) -> str:
    """Format an amount in millicores or MiB."""
    if amount is None:
        return UNSET
    if resource == "cpu":
        return f"{amount}m"
    return f"{amount // MIB}Mi" if amount % MIB == 0 else f"{amount / MIB:.1f}Mi"


def format_short(resource: ResourceName, amount: float | None) -> str:
    """Format millicores or bytes short enough for a table: whole units below one core or GiB, three digits above."""
    if amount is None:
        return UNSET
    small, unit, large = (1, "m", 1000) if resource == "cpu" else (MIB, "Mi", GIB)
    if not amount:
        return "0"
    if amount < large:
        return f"{amount / small:.0f}{unit}"
    number = amount / large
    text = f"{number:,.0f}" if number >= 100 or amount % large == 0 else f"{number:.3g}"
    return text if resource == "cpu" else f"{text}Gi"
