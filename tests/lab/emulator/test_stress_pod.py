"""The manifest of the stress pod."""

import re

from trimtab.kube.kinds.pods import Resources
from trimtab.lab.emulator.stress_pod import SCRIPT, build_deployment


def test_stress_pod_passes_the_script_to_the_shell_unchanged() -> None:
    """Kubernetes takes `$$` in a command for `$`: unescaped, the shell counted the wrong process's CPU time."""
    made = build_deployment("web", size=Resources(100, 100, 2**26, 2**26))
    (container,) = made["spec"]["template"]["spec"]["containers"]
    *shell, given = container["command"]
    assert shell == ["/bin/sh", "-c"]
    assert re.sub(r"\$(\$|\([^)]*\))", lambda found: "$" if found[1] == "$" else "", given) == SCRIPT
    assert "$$" in SCRIPT
