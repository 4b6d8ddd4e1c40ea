"""The error of collectors that a kernel does not support."""


class CollectorUnsupported(Exception):
    """The kernel or CPU does not support this measurement; a retry cannot succeed."""
