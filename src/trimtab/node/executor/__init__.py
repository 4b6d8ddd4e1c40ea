"""Write decided values to files: only differences, in an order that the kernel accepts, and restore them.

`knob_files` finds the files, `write_order` orders the writes, and `executor` writes and keeps the journal.
"""

from trimtab.node.executor.executor import Executor, WriteResult
from trimtab.node.executor.knob_files import KnobFiles

__all__ = ["Executor", "KnobFiles", "WriteResult"]
