"""Run the command line as `python -m trimtab`, for installations whose command is not on the PATH."""

from trimtab.cli import main

main()
