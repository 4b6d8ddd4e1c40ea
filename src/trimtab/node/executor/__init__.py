"""From decided values to files: only what differs, in an order that the kernel takes, and back again in the end.

`surface` knows the files, `levels` the order, `executor` does it and keeps the journal, `enforcer` is a whole round
from the picture of the node to what was done.
"""

from trimtab.node.executor.executor import Executor, WriteResult
from trimtab.node.executor.knob_files import KnobFiles

__all__ = ["Executor", "KnobFiles", "WriteResult"]
