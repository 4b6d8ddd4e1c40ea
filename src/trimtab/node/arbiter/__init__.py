"""Resolve the requests of all strategies into one valid value per knob, and report who was overruled.

`requests` defines a request, `resolve` decides between requests for a knob, and `validate` fits the values to
each other, to their parents and to the kernel's rules. All of it is pure.
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
