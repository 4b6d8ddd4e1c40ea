"""The dashboard, on a live operator, on the demo, or on a saved snapshot."""

from typing import TYPE_CHECKING

from trimtab.lazy import lazy_exports

if TYPE_CHECKING:
    from trimtab.web.app import build_app
    from trimtab.web.backends.backend import DashboardBackend
    from trimtab.web.backends.snapshot import SnapshotBackend
    from trimtab.web.embedded import embed_dashboard
    from trimtab.web.server import serve_dashboard

__all__ = ["DashboardBackend", "SnapshotBackend", "build_app", "embed_dashboard", "serve_dashboard"]

__getattr__ = lazy_exports(
    __name__,
    {
        "DashboardBackend": "backends.backend",
        "SnapshotBackend": "backends.snapshot",
        "build_app": "app",
        "embed_dashboard": "embedded",
        "serve_dashboard": "server",
    },
)
