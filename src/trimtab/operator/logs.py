"""Configure logging for the whole process: JSON for programs, or lines for people, on standard error.

Messages of libraries that use `logging` have the same format. Code that works on a workload runs inside
`bind_workload`, so that every log line carries the workload's name.
"""

from __future__ import annotations

import logging
import sys
from contextlib import AbstractContextManager
from typing import Any, TextIO

import structlog
from structlog.typing import Processor

from trimtab.operator.config.model import LogFormat, LogSettings
from trimtab.printable import escape_event


def configure_logging(logs: LogSettings, *, stream: TextIO | None = None) -> None:
    """Configure the log's format and level; a later call changes both for all further messages."""
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
    # Informational messages of libraries are noise to users; their warnings are not.
    root.setLevel(max(level, logging.WARNING))


def bind_workload(*, kind: str, namespace: str, name: str, **more: Any) -> AbstractContextManager[None]:
    """Add the workload to every log line: `with bind_workload(kind="Deployment", namespace="shop", name="web"):`."""
    return structlog.contextvars.bound_contextvars(workload=f"{kind} {namespace}/{name}", **more)


def _build_renderers(form: LogFormat, stream: TextIO) -> list[Processor]:
    if form is LogFormat.JSON:
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    # structlog's default formatter prints local variables, which may contain tokens and passwords.
    plain = structlog.dev.plain_traceback
    lines = structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=plain)
    return [structlog.processors.format_exc_info, escape_event, lines]
