"""The gate that every call of one operator process to the outside passes: the place where a process is killed.

Between two awaits a process changes nothing that anyone else sees. So a kill at any call of a port, right before or right
after its effect, stands for a kill at any moment. A killed process has no effect any more, however its code unwinds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


class ProcessKilled(BaseException):
    """The simulated process was killed; only the simulation may catch it."""


def is_killed(error: BaseException) -> bool:
    """Return whether an error is a kill, or a group of errors with one."""
    if isinstance(error, BaseExceptionGroup):
        return any(is_killed(each) for each in error.exceptions)
    return isinstance(error, ProcessKilled)


@dataclass(slots=True)
class ProcessGate:
    """The gate of one process."""

    name: str
    """The name of the process in traces."""
    is_dead: bool = False
    calls: int = 0
    """The number of passages: two for each call, before and after its effect."""
    kill_at: int | None = None
    """The passage at which the process is killed."""
    on_kill: Callable[[str], None] = lambda _: None
    """Called with the name of the call at which the process was killed."""

    def pass_through(self, call: str) -> None:
        """Pass before or after the effect of a call; raise ProcessKilled if the process ends here, or has ended."""
        if self.is_dead:
            raise ProcessKilled(self.name)
        self.calls += 1
        if self.kill_at is not None and self.calls >= self.kill_at:
            self.is_dead, self.kill_at = True, None
            self.on_kill(call)
            raise ProcessKilled(self.name)
