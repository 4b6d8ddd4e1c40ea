"""Write kubeconfig files with one context named `here`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

SERVER = "https://192.0.2.1:6443"


def write(
    path: Path,
    *,
    cluster: Mapping[str, Any] | None = None,
    user: Mapping[str, Any] | None = None,
    namespace: str = "",
    name: str = "here",
) -> Path:
    """Write a kubeconfig whose context, cluster and user all have this name."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": SERVER, **(cluster or {})}}],
        "users": [{"name": name, "user": dict(user or {})}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": namespace}}],
        "current-context": name,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    return path
