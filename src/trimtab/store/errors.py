"""The errors of the store, named by what the caller can do about them.

Each message is one line that names the setting and what to try; none holds a password. Whatever the drivers
raise becomes one of these in `sqlite` and `postgres`, so no other package knows which database it talks to.

StoreError
├── AddressError          the setting cannot be understood: fix it
├── AccessError           the password, or a right on the server, file or folder, is missing: grant it
├── UnavailableError      server or disk do not answer now: try again later
├── BusyError             others held it for too long: try again
├── FullError             no space left: free some, or keep less
├── NewerSchemaError      a newer Trimtab wrote it: upgrade this one
├── DamagedError          what lies there cannot be read: it is set aside at the next use
│   └── DamagedStateError     one learned state only: learn it again
├── RecordError           this record cannot be kept: a defect of whoever made it
└── ArchiveError          these lines cannot be imported
"""

from trimtab.errors import TrimtabError

SETTING = "store.url"


class StoreError(TrimtabError):
    """An operation of the store failed."""


class AddressError(StoreError):
    """The setting is neither the path of a file nor a URL that the store supports."""


class AccessError(StoreError):
    """This process is not permitted to open or write the store."""


class UnavailableError(StoreError):
    """The server does not respond, or the disk fails."""


class BusyError(StoreError):
    """Another process or too many of our own tasks held the store for too long."""


class FullError(StoreError):
    """The disk or the quota is full."""


class NewerSchemaError(StoreError):
    """The schema has a version that this code does not know."""


class DamagedError(StoreError):
    """The stored data is not what was written."""


class DamagedStateError(DamagedError):
    """A learned state does not match its checksum."""


class RecordError(StoreError):
    """A record has a value that its column cannot store."""


class ArchiveError(StoreError):
    """The lines to import are truncated, damaged or from a newer version. Nothing was imported."""
