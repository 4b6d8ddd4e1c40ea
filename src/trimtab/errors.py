"""The root of every error that is the user's to mend, apart from all rooms so that each of them can raise one."""


class TrimtabError(Exception):
    """Something the user can mend; the message is one line that names what is wrong and how to mend it.

    The command line prints it as it is and exits with 2; any other exception is our fault and keeps its traceback.
    """
