"""The base class of all errors that the user can fix; it is outside all packages, so that each can raise one."""


class TrimtabError(Exception):
    """An error that the user can fix; the message is one line that names the problem and its fix.

    The command line prints it and exits with 2; any other exception is a defect and keeps its traceback.
    """
