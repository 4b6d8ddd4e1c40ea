"""The right-sizing operator: controllers, admission webhooks, leader election, configuration and the process."""

from typing import TYPE_CHECKING

from trimtab.lazy import lazy_exports

if TYPE_CHECKING:
    from trimtab.operator.app import OperatorApp
    from trimtab.operator.cluster_state import ClusterState
    from trimtab.operator.config.model import OperatorConfig
    from trimtab.operator.config.reloader import ConfigReloader

__all__ = ["ClusterState", "ConfigReloader", "OperatorApp", "OperatorConfig"]

__getattr__ = lazy_exports(
    __name__,
    {
        "ClusterState": "cluster_state",
        "ConfigReloader": "config.reloader",
        "OperatorApp": "app",
        "OperatorConfig": "config.model",
    },
)
