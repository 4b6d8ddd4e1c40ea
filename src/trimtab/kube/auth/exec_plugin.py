"""Credentials that a program issues: the exec plugins of kubeconfig, which cloud providers use to log in.

The result is kept in memory until shortly before it expires; however many requests wait for it, the program runs
once. The program may use our terminal, if there is one, to prompt and to explain. Without a terminal, the end of its
stderr becomes part of the error. `exec_credential` implements the protocol.
"""

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import structlog

from trimtab.kube.auth.credentials import ClientCredential, Clock, utc_now
from trimtab.kube.auth.exec_credential import (
    IssuedCredential,
    build_environment,
    parse_exec_credential,
    validate_plugin,
)
from trimtab.kube.auth.kubeconfig import KubeconfigEntry
from trimtab.kube.auth.kubeconfig_file import ExecConfig
from trimtab.kube.errors import ConfigError

log = structlog.get_logger(__name__)

REFRESH_MARGIN = timedelta(seconds=30)
"""The longest time before its expiry that a credential is renewed, so that no request in flight outlives its
token."""

_SECRET_PATTERN = re.compile(
    r"eyJ[\w-]+\.[\w.-]+|-----BEGIN.*?(-----END[^-]*-----|$)|(?<=[Bb]earer )\S+", re.DOTALL
)
_CONTROL_CHARACTERS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class ExecPlugin:
    """A credential provider that runs a program."""

    def __init__(
        self,
        plugin: ExecConfig,
        *,
        user: KubeconfigEntry[Any],
        cluster: Mapping[str, object],
        environ: Mapping[str, str],
        timeout: float = 60,
        interactive_timeout: float = 600,
        now: Clock = utc_now,
    ) -> None:
        self._plugin = validate_plugin(plugin, where=user.where("exec"))
        self._where = user.where(f"exec: {plugin.command}")
        self._command = str(user.resolve_path(plugin.command)) if "/" in plugin.command else plugin.command
        self._cluster = cluster
        self._environ = environ
        self._timeout = timeout
        self._interactive_timeout = interactive_timeout
        self._now = now
        self._issued: IssuedCredential | None = None
        self._refresh_at: datetime | None = None
        self._refresh_task: asyncio.Task[IssuedCredential] | None = None

    async def get_credential(self) -> ClientCredential:
        if self._issued and not self._is_past(self._refresh_at):
            return self._issued.credential
        if self._refresh_task is None:
            # Use a task of its own: cancelling one waiting request must not fail the others.
            self._refresh_task = asyncio.create_task(self._refresh())
            self._refresh_task.add_done_callback(self._on_refresh_done)
        return (await asyncio.shield(self._refresh_task)).credential

    async def renew(self, rejected: ClientCredential) -> bool:
        if self._issued and self._issued.credential is rejected:
            self._issued = None
        return True

    def _is_past(self, moment: datetime | None) -> bool:
        return moment is not None and self._now() >= moment

    def _on_refresh_done(self, run: asyncio.Task[IssuedCredential]) -> None:
        self._refresh_task = None
        if not run.cancelled():
            run.exception()  # mark it as retrieved, even if every waiting request was cancelled

    async def _refresh(self) -> IssuedCredential:
        try:
            output = await self._run_command()
            answer = parse_exec_credential(output, version=self._plugin.api_version, where=self._where)
        except ConfigError as error:
            if self._issued is None or self._is_past(self._issued.expires_at):
                raise
            log.warning(
                "credentials.refresh_failed",
                error=str(error),
                fallback="the current credential until it expires",
            )
            self._refresh_at = self._issued.expires_at
            return self._issued
        self._issued = answer
        self._refresh_at = answer.expires_at and answer.expires_at - min(
            REFRESH_MARGIN, (answer.expires_at - self._now()) / 10
        )
        return answer

    async def _run_command(self) -> bytes:
        """Run the program and return its stdout."""
        mode = self._plugin.interactive_mode
        interactive = mode != "Never" and _is_terminal(sys.stdin)
        if mode == "Always" and not interactive:
            raise ConfigError(
                f"{self._where}: needs a terminal (interactiveMode Always), but stdin is not one; run it in a terminal"
            )
        watched = _is_terminal(sys.stderr)
        process = await self._start(interactive=interactive, watched=watched)
        seconds = self._interactive_timeout if interactive or watched else self._timeout
        try:
            async with asyncio.timeout(seconds):
                output, errors = await process.communicate()
        except TimeoutError:
            raise ConfigError(
                f"{self._where}: did not finish within {seconds:g} s and was stopped; run it by hand to see why"
            ) from None
        finally:
            await _kill(process, group=not interactive)
        if process.returncode:
            summary = summarize_output((errors or b"").decode("utf-8", "replace"))
            raise ConfigError(
                f"{self._where}: exited with {process.returncode}: {summary or 'it wrote nothing to stderr'}"
            )
        return output

    async def _start(self, *, interactive: bool, watched: bool) -> Process:
        extra = build_environment(self._plugin, cluster=self._cluster, interactive=interactive)
        try:
            return await asyncio.create_subprocess_exec(
                self._command,
                *(argument.reveal() for argument in self._plugin.args),
                stdin=None if interactive else DEVNULL,
                stdout=PIPE,
                stderr=None if watched else PIPE,
                env={**self._environ, **extra},
                # A new session lets us kill all its child processes; but such a session has no terminal.
                start_new_session=not interactive,
            )
        except FileNotFoundError:
            hint = summarize_output(self._plugin.install_hint) or "install it, or put it on the PATH"
            raise ConfigError(f"{self._where}: command not found; {hint}") from None
        except OSError as error:
            raise ConfigError(f"{self._where}: cannot be run: {error.strerror}") from error


def _is_terminal(stream: Any) -> bool:
    return stream is not None and stream.isatty()


async def _kill(process: Process, *, group: bool) -> None:
    """Kill the program and its children if it still runs."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            if group:
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
        await process.wait()


def summarize_output(output: str) -> str:
    """Return the end of a program's output as one line in which anything like a secret is hidden."""
    text = " ".join(_CONTROL_CHARACTERS.sub(" ", _SECRET_PATTERN.sub("…", output)).split())
    return text if len(text) <= 300 else f"…{text[-300:]}"
