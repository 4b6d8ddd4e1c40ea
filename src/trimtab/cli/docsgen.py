"""The manual of all commands, made from what each says in its `--help`: `python -m trimtab.cli.docsgen docs/reference/commands.md`.

A test holds the page to what the commands say.
"""

import sys
from pathlib import Path

from trimtab.cli import COMMANDS, build

HEAD = """\
# Commands

Made from `trimtab COMMAND --help` by `python -m trimtab.cli.docsgen docs/reference/commands.md`; do not edit.

Every command exits with 0 when it is done, with 1 when it found what it was asked to tell of, and with 2 and one line
on stderr when something is wrong with what it was given. As a kubectl plugin they are `kubectl trimtab COMMAND`.
"""


def manual() -> str:
    """The page, in Markdown."""
    made = build(*COMMANDS).generate_docs(recursive=True)
    return HEAD + "\n" + made[made.index("## trimtab ") :].rstrip() + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(manual(), encoding="utf-8")
