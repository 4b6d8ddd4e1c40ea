"""Where the wishes of all strategies meet: one value a knob, which the kernel takes, and an account of who lost.

`wishes` says what a wish is, `consolidation` makes one value of several wishes, `admission` holds the values to each
other, to their parents and to the kernel's rules. All of it is pure; nothing is read or written here.
"""

from trimtab.node.arbiter.requests import Bound, Precedence, Spot, Value, Wish
from trimtab.node.arbiter.resolve import Conflict, consolidate
from trimtab.node.arbiter.validate import Refusal, World, admit

__all__ = [
    "Bound",
    "Conflict",
    "Precedence",
    "Refusal",
    "Spot",
    "Value",
    "Wish",
    "World",
    "admit",
    "consolidate",
]
