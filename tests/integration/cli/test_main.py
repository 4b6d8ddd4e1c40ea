"""The contract of every command: quick help, one line for an error, and a meaningful exit code."""

import os
import signal
import subprocess
import sys

import pytest

TRIMTAB = [sys.executable, "-m", "trimtab"]


@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [
        (["--help"], {"pydantic", "aiohttp", "yaml", "numpy", "sqlalchemy", "rich.markdown"}),
        (["scan", "--help"], {"sqlalchemy", "matplotlib", "aiohttp.web"}),
    ],
    ids=["help", "scan"],
)
def test_heavy_modules_are_imported_only_where_needed(arguments: list[str], heavy: set[str]) -> None:
    code = f"import sys; from trimtab.cli import run; run({arguments}); sys.exit(str({heavy} & sys.modules.keys()))"
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert asked.stderr == "set()\n"


def test_operator_imports_no_library_that_its_configuration_does_not_use() -> None:
    rare = {"grpc", "matplotlib", "pyarrow", "trimtab.web", "trimtab.lab"}
    code = (
        "import sys; import trimtab.operator.app as app; from trimtab.cli import run; run(['operator', '--help']);"
        f"sys.exit(str({rare} & sys.modules.keys()))"
    )
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert asked.stderr == "set()\n"


def test_interrupt_exits_quietly_with_130() -> None:
    code = (
        "import signal, sys, trimtab.cli as cli; from cyclopts import App\n"
        # Tests that run in the background ignore interrupts, and children inherit that.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "app = App(result_action='return_value', suppress_keyboard_interrupt=False)\n"
        "app.default(lambda: (print('ready', flush=True), signal.pause()))\n"
        "cli.build_app = lambda *_: app\n"
        "cli.main()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=60)
    assert (running.returncode, err) == (130, "")


def test_log_of_a_command_goes_to_stderr() -> None:
    """A ConfigMap with an old name of a setting must not corrupt `scan -o json`."""
    code = (
        "import sys, trimtab.cli as cli; from trimtab.operator.config.loader import load_configuration\n"
        "old = 'pace: {cluster: {atOnce: 3}}'\n"
        "cli.run = lambda _: load_configuration(text=old, origin='ConfigMap', environment={}) and print('[]')\n"
        "sys.argv = ['trimtab', 'scan', '-o', 'json']\n"
        "cli.main()"
    )
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (asked.returncode, asked.stdout) == (0, "[]\n")
    assert "config.setting_renamed" in asked.stderr


def test_closed_output_pipe_is_not_an_error() -> None:
    with subprocess.Popen(
        [*TRIMTAB, "crds"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.readline()
        running.stdout.close()
        assert running.stderr.read() == ""
        assert running.wait(timeout=60) == 0


def test_main_reports_a_full_output_device() -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:  # noqa: PTH123 - no file of ours
        asked = subprocess.run(
            [*TRIMTAB, "crds"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (asked.returncode, asked.stderr) == (
        2,
        "trimtab: cannot write the output: No space left on device\n",
    )


NO_TERMINAL = "trimtab: --apply: there is no terminal for the confirmation; add --yes, or --dry-run server\n"


@pytest.mark.parametrize(
    ("closed", "message"),
    [
        pytest.param("<&-", NO_TERMINAL, id="stdin"),
        pytest.param(">&-", NO_TERMINAL, id="stdout"),
        pytest.param("2>&-", "", id="stderr"),
    ],
)
def test_main_runs_with_closed_standard_streams(closed: str, message: str) -> None:
    asked = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *TRIMTAB, "patch", "--apply"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (asked.returncode, asked.stdout, asked.stderr) == (2, "", message)


def test_ascii_output_replaces_unsupported_characters() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    asked = subprocess.run(
        [*TRIMTAB, "scan", "--help"], capture_output=True, text=True, check=False, env=environment
    )
    assert (asked.returncode, asked.stderr) == (0, "")
    assert " ? or one of" in asked.stdout
