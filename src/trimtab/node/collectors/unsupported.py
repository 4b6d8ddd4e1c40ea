"""What a kernel need not have."""


class CollectorUnsupported(Exception):
    """This kernel or processor cannot tell; asking again is of no use."""
