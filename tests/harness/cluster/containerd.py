"""Run containerd with runc, pod networks on loopback, and NRI open to plugins."""

import json
import os
import subprocess
from pathlib import Path

from harness import build
from harness.cluster import images
from harness.cluster.images import Image
from harness.process import Process


class Containerd:
    """A containerd that keeps all that it has in one folder."""

    def __init__(self, folder: Path, *, log: Path) -> None:
        self.socket = folder / "containerd.sock"
        self.nri_socket = folder / "nri.sock"
        self._folder = folder
        self._programs = build.CONTAINERD.built()
        self._write_network()
        settings = folder / "containerd.toml"
        settings.write_text(_SETTINGS.format(folder=folder, pause=images.PAUSE))
        # runc and its like live where the path of a plain user does not lead.
        path = f"{self._programs}:{os.environ['PATH']}:/usr/sbin:/sbin"
        command = [str(self._programs / "containerd"), "--config", str(settings)]
        self._server = Process("containerd", command, log=log, environment={"PATH": path})

    def start(self) -> None:
        self._server.start()
        self._server.wait_until(self._answers)

    def kill(self) -> None:
        self._server.kill()

    def load(self, image: Image) -> None:
        """Make an image known to the node."""
        archive = self._folder / "image.tar"
        image.write(archive)
        # Else it goes to the server in small pieces, which takes both more than twice the time.
        self._ctr("--namespace=k8s.io", "images", "import", "--local", str(archive))
        archive.unlink()

    def _ctr(self, *arguments: str) -> None:
        command = [str(self._programs / "ctr"), f"--address={self.socket}", *arguments]
        subprocess.run(command, check=True, capture_output=True)

    def _answers(self) -> bool:
        try:
            self._ctr("version")
        except subprocess.CalledProcessError:
            return False
        return True

    def _write_network(self) -> None:
        """A link from each pod to the machine, and no way further: tests stay on it."""
        ranges = [[{"subnet": "10.88.0.0/16"}]]
        ipam = {"type": "host-local", "dataDir": str(self._folder / "ipam"), "ranges": ranges}
        network = {"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "ptp", "ipam": ipam}]}
        (self._folder / "cni").mkdir()
        (self._folder / "cni" / "10-pods.conflist").write_text(json.dumps(network))


_SETTINGS = """version = 3
root = "{folder}/containerd-root"
state = "{folder}/containerd-state"
[grpc]
  address = "{folder}/containerd.sock"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{pause}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true        # a container, as CI often is, lacks the right to lower it
  netns_mounts_under_state_dir = true  # so that all that is to clear is in one place
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      SystemdCgroup = false
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "{folder}/cni"
[plugins."io.containerd.nri.v1.nri"]
  disable = false
  socket_path = "{folder}/nri.sock"
  plugin_path = "{folder}/nri-plugins"
"""
