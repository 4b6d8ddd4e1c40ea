"""What can go wrong with the store, named by what its caller can do about it.

Each message is one line that names the setting and what to try; none holds a password. Whatever the drivers
raise becomes one of these in `sqlite` and `postgres`, so no other room knows which database it talks to.

StoreError
├── AddressError          the setting cannot be understood: fix it
├── AccessError           the password, or a right on the server, file or folder, is missing: grant it
├── UnavailableError      server or disk do not answer now: try again later
├── BusyError             others held it for too long: try again
├── FullError             no space left: free some, or keep less
├── NewerSchemaError      a newer Trimtab wrote it: upgrade this one
├── DamagedError          what lies there cannot be read: it is set aside at the next use
│   └── DamagedStateError     one learned state only: learn it anew
├── RecordError           this record cannot be kept: a defect of whoever made it
└── ArchiveError          these lines cannot be imported
"""

from trimtab.errors import TrimtabError

SETTING = "store.url"


class StoreError(TrimtabError):
    """The store could not do what it was asked."""


class AddressError(StoreError):
    """The setting is no path of a file and no URL that the store knows."""


class AccessError(StoreError):
    """The store may not be opened or written with the rights that we have."""


class UnavailableError(StoreError):
    """The server is away, or the disk fails."""


class BusyError(StoreError):
    """Another process or too many of our own tasks held the store for too long."""


class FullError(StoreError):
    """The disk or the quota is full."""


class NewerSchemaError(StoreError):
    """The schema is of a version that this code does not know."""


class DamagedError(StoreError):
    """What is stored is not what was written."""


class DamagedStateError(DamagedError):
    """A learned state does not match its checksum."""


class RecordError(StoreError):
    """A record holds what no column can."""


class ArchiveError(StoreError):
    """Lines to import are cut short, damaged or from a newer version. Nothing of them was kept."""
