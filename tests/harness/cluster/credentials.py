"""Issue the authorities, certificates, tokens and kubeconfig of a test cluster."""

import secrets
from pathlib import Path

import yaml

from harness.builders.certificates import LOOPBACK, Authority


class Credentials:
    """The files of a new cluster, made in one folder."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder, "trimtab-ca")
        self.serving = self.authority.issue("kube-apiserver", hosts=LOOPBACK)
        self.client = self.authority.issue("admin-by-certificate", group="system:masters")
        self.service_accounts = self.authority.issue("service-accounts")
        # The API server believes this one about who the user is, so it signs no other certificates.
        self.front_authority = Authority(folder, "front-proxy-ca")
        self.front = self.front_authority.issue("front-proxy-client")
        self.token = secrets.token_urlsafe()
        self.tokens = folder / "tokens.csv"
        self.tokens.write_text(f'{self.token},admin,admin,"system:masters"\n')
        self.tokens.chmod(0o600)

    def write_kubeconfig(self, path: Path, *, server: str) -> None:
        """Write how the administrator reaches the cluster: at its own address, or at that of a proxy before it."""
        cluster = {"server": server, "certificate-authority": str(self.authority.cert)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "trimtab", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": self.token}}],
            "contexts": [{"name": "trimtab", "context": {"cluster": "trimtab", "user": "admin"}}],
            "current-context": "trimtab",
        }
        path.write_text(yaml.safe_dump(config, sort_keys=False))
        path.chmod(0o600)
