"""Where the wishes of all strategies meet: one value a knob, which the kernel takes, and an account of who lost.

`wishes` says what a wish is, `consolidation` makes one value of several wishes, `admission` holds the values to each
other, to their parents and to the kernel's rules. All of it is pure; nothing is read or written here.
"""

from trimtab.node.arbiter.requests import BoundType, KnobRef, KnobRequest, Precedence, Value
from trimtab.node.arbiter.resolve import KnobConflict, resolve_requests
from trimtab.node.arbiter.validate import BaselineReader, RejectedValue, validate_values

__all__ = [
    "BaselineReader",
    "BoundType",
    "KnobConflict",
    "KnobRef",
    "KnobRequest",
    "Precedence",
    "RejectedValue",
    "Value",
    "resolve_requests",
    "validate_values",
]
