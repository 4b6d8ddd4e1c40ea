"""Start and stop the processes of a control plane; `cluster` uses them."""

from pathlib import Path

from harness import build
from harness.cluster.credentials import Credentials
from harness.process import Process, free_port


class ControlPlane:
    """Processes of etcd, API server, controller manager and scheduler, created but not started."""

    def __init__(self, directory: Path, credentials: Credentials) -> None:
        self._directory = directory
        self._credentials = credentials
        self.etcd_url = f"http://127.0.0.1:{free_port()}"
        self._port = free_port()
        self.server = f"https://127.0.0.1:{self._port}"
        self.kubeconfig = directory / "kubeconfig"
        credentials.write_kubeconfig(self.kubeconfig, server=self.server)
        self.etcd = self._process("etcd", self._etcd_flags())
        self.apiserver = self._process("kube-apiserver", self._apiserver_flags())
        flags = [
            f"--service-account-private-key-file={credentials.service_accounts.key}",
            f"--root-ca-file={credentials.authority.cert}",  # the authority that pods trust
            "--horizontal-pod-autoscaler-sync-period=5s",  # else a test waits for many times 15 s
        ]
        self.controllers = self._process("kube-controller-manager", [*self._client_flags(), *flags])
        self.scheduler = self._process("kube-scheduler", self._client_flags())

    def kill(self) -> None:
        """Kill all processes: a graceful end would only save a state that no test needs."""
        for component in (self.scheduler, self.controllers, self.apiserver, self.etcd):
            component.kill()

    def _process(self, name: str, flags: list[str]) -> Process:
        log = self._directory / "logs" / f"{name}.log"
        return Process(name, [build.KUBE.built() / name, *flags], log=log)

    def _etcd_flags(self) -> list[str]:
        return [
            f"--data-dir={self._directory / 'etcd'}",
            "--unsafe-no-fsync",  # who loses the machine loses the test too
            f"--quota-backend-bytes={8 << 30}",
            f"--listen-client-urls={self.etcd_url}",
            f"--advertise-client-urls={self.etcd_url}",
            f"--listen-peer-urls=http://127.0.0.1:{free_port()}",
        ]

    def _apiserver_flags(self) -> list[str]:
        own = self._credentials
        return [
            f"--etcd-servers={self.etcd_url}",
            f"--secure-port={self._port}",
            "--bind-address=127.0.0.1",
            # Else it looks for a default route, which a machine without a network has not.
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--allow-privileged",
            f"--tls-cert-file={own.serving.cert}",
            f"--tls-private-key-file={own.serving.key}",
            f"--client-ca-file={own.authority.cert}",
            f"--token-auth-file={own.tokens}",
            "--authorization-mode=Node,RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={own.service_accounts.cert}",
            f"--service-account-signing-key-file={own.service_accounts.key}",
            f"--requestheader-client-ca-file={own.front_authority.cert}",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={own.front.cert}",
            f"--proxy-client-key-file={own.front.key}",
            f"--kubelet-client-certificate={own.client.cert}",
            f"--kubelet-client-key={own.client.key}",
            f"--kubelet-certificate-authority={own.authority.cert}",
            "--kubelet-preferred-address-types=Hostname",
            # Benchmarks write many pods at once. What a test wants refused, the fault proxy refuses.
            "--max-requests-inflight=3000",
            "--max-mutating-requests-inflight=1500",
            "--profiling=false",
        ]

    def _client_flags(self) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig}",
            f"--cert-dir={self._directory / 'certificates'}",
            "--secure-port=0",
            "--leader-elect=false",
            "--profiling=false",
        ]
