"""`python -m trimtab` is `trimtab`, for where the command is not on the path."""

from trimtab.cli import main

main()
