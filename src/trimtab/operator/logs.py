"""One way to log for all that runs in the process: JSON for programs, or lines for people, on standard error.

What libraries say through `logging` comes out in the same form. Whoever works on a workload does so `about` it, and
every line that is written meanwhile, in whatever room, carries its name.
"""

from __future__ import annotations

import logging
import sys
from contextlib import AbstractContextManager
from typing import Any, TextIO

import structlog
from structlog.typing import Processor

from trimtab.operator.config.model import LogFormat, LogSettings


def configure_logging(logs: LogSettings, *, stream: TextIO | None = None) -> None:
    """Log in this way from now on; calling it again changes the format and level of what follows."""
    stream = stream or sys.stderr
    level = logging.getLevelNamesMapping()[logs.level.upper()]
    common: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*common, *_build_renderers(logs.format, stream)],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*common, structlog.stdlib.add_logger_name],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_build_renderers(logs.format, stream),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # What libraries tell of themselves is of use to their authors; their complaints are of use to ours.
    root.setLevel(max(level, logging.WARNING))


def bind_workload(*, kind: str, namespace: str, name: str, **more: Any) -> AbstractContextManager[None]:
    """`with about(kind="Deployment", namespace="shop", name="web"):` names the workload in every line."""
    return structlog.contextvars.bound_contextvars(workload=f"{kind} {namespace}/{name}", **more)


def _build_renderers(form: LogFormat, stream: TextIO) -> list[Processor]:
    if form is LogFormat.JSON:
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    # Its own way to show an exception shows every variable too, and tokens and passwords among them.
    plain = structlog.dev.plain_traceback
    return [structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=plain)]
