"""The command line. A command is a file here with a function of the same name, and a line in `COMMANDS`.

The function's parameters are the options, its docstring is the help (the first line as in `COMMANDS`, then an example),
and its return value is the exit code: 0 or None for success, 1 if the command found what the user asked it to check.
Wrong usage and a `TrimtabError` end in one line on stderr and exit code 2. A command's file is imported only when the
command runs, which keeps start-up fast.
"""

import errno
import importlib
import io
import keyword
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from cyclopts import App, CycloptsError, Parameter, UnusedCliTokensError

from trimtab import __version__
from trimtab.errors import TrimtabError
from trimtab.frame_memory import call_with_frame_memory
from trimtab.memory_trim import pause_collector
from trimtab.printable import escape_invisible

__all__ = ["COMMANDS", "build_app", "main"]

COMMANDS = {
    "agent": "Run the node agent: it measures the pods of its node and protects latency-sensitive ones.",
    "backtest": "Replay recorded usage through strategies, and compare their cost and their risk.",
    "cleanup": "Remove what an uninstalled Trimtab left in a cluster: annotations, webhooks, its lease, Secret and NodeMetrics.",
    "completion": "Print a script with which a shell completes commands and options.",
    "crds": "Print the CustomResourceDefinitions of Trimtab's kinds, or write them to files.",
    "cri": "Run a CRI proxy for a runtime without NRI, so that the node agent can adjust containers when they start.",
    "demo": "Show a simulated week of a cluster in half a minute, with the production operator and the dashboard.",
    "diff": "Show current against recommended resources as a unified diff.",
    "doctor": "Check a cluster's version, permissions, usage data, in-place resize, CRDs, webhook and the running operator, with a remedy for each problem.",
    "explain": "Explain the recommendation for one workload: each factor with its source, a chart, a back-test on its history.",
    "history": "Show the changes, reverts and holds of workloads: when, from which size to which, and why.",
    "import": "Convert VerticalPodAutoscalers or a KRR command to OptimizationPolicies, and import VPA's checkpoints.",
    "operator": "Run the right-sizing operator: it sizes the workloads that OptimizationPolicies select.",
    "patch": "Write recommended resources as kubectl commands, patches or edits of your files, or apply them.",
    "plan": "Show the plan for an Intent, its alternatives and their expected effects, without executing it.",
    "resume": "End an emergency stop: operator and agents go on where they were.",
    "scan": "Show the waste and the risks of a cluster: requests against usage, in money, the largest first.",
    "simulate": "Simulate a cluster under several policies, and compare nodes, slack, OOM kills, throttling, objectives and cost.",
    "stop": "Stop every change of operator and agents within seconds, until `trimtab resume`.",
    "stress": "Run pods with the load of a stored workload while a strategy sizes them in place, and report both.",
    "train": "Train a strategy on generated workloads and recordings; continue an interrupted run.",
    "workload": "Generate workloads from settings and a seed; store, plot and export them.",
}

USAGE_ERROR = 2
INTERRUPTED = 130


def build_app(*asked: str) -> App:
    """Build the app of all commands without importing them; the commands in `asked` show their full help."""
    app = App(
        name="trimtab",
        help="Keeps every workload of a Kubernetes cluster at the smallest size that still meets its objectives.",
        version=__version__,
        help_format="plaintext",
        default_parameter=Parameter(negative=(), show_default=_filter_default),
        result_action="return_value",
        suppress_keyboard_interrupt=False,
        exit_on_error=False,
        print_error=False,
    )
    for name, summary in COMMANDS.items():
        spelled = module_name(name)
        app.command(f"trimtab.cli.{spelled}:{spelled}", name=name, help=None if name in asked else summary)
    return app


def module_name(name: str) -> str:
    """Return the name of a command's file and function; `import` is a Python keyword and gets an underscore."""
    return f"{name}_" if keyword.iskeyword(name) else name


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    code = 0
    try:
        code = build_app(*arguments[:1])(list(arguments)) or 0
        sys.stdout.flush()  # so that a write error is reported below, not ignored at exit
    except CycloptsError as error:
        return _print_usage_error(_format_usage_error(error))
    except TrimtabError as error:
        return _print_usage_error(_to_one_line(error))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader, such as `head`, stopped reading
        _discard_output()
        return code
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT, errno.EIO}:
            raise
        _discard_output()
        return _print_usage_error(f"cannot write the output: {error.strerror}")
    return code


@contextmanager
def ignore_closed_pipe() -> Iterator[None]:
    """Ignore a reader that stops early, such as `| head`, so that the exit code can still be computed."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()


def _discard_output() -> None:
    """Redirect stdout to the null device, so that the flush at exit does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> NoReturn:
    """Run the `trimtab` command and exit."""
    arguments = sys.argv[1:]
    _open_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # In an encoding without arrows, print "?": the default, strict, ends every command in a traceback.
        sys.stdout.reconfigure(errors="replace")
    _preload_command(*arguments[:1])
    sys.exit(call_with_frame_memory(lambda: run(arguments)))


def _open_closed_streams() -> None:
    """Open the null device for standard streams that are closed."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - as long as we run


def _preload_command(name: str = "") -> None:
    """Import a command, and send what it logs to stderr."""
    if name in COMMANDS:
        with pause_collector():
            import structlog  # the help of all commands needs no log

            # Its default is stdout, where programs expect nothing but a command's output.
            structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
            importlib.import_module(f"trimtab.cli.{module_name(name)}")


def _filter_default(default: object) -> object:
    """Return the default for a command's help; empty defaults are not shown."""
    return None if default is False or default in ((), "") else default


def _print_usage_error(line: str) -> int:
    print_message(line)
    return USAGE_ERROR


def print_message(text: str) -> None:
    """Print one line to stderr; it may quote names and answers of others, so control characters are escaped."""
    print(f"trimtab: {escape_invisible(text)}", file=sys.stderr)


def _format_usage_error(error: CycloptsError) -> str:
    command = " ".join(["trimtab", *(error.command_chain or ())])
    if isinstance(error, UnusedCliTokensError):
        wrong = f'Unexpected argument "{(error.unused_tokens or [""])[0]}".'
    else:
        wrong = _to_one_line(error)
    return f"{wrong} See `{command} --help`."


def _to_one_line(error: Exception) -> str:
    return " ".join(str(error).split())
