"""Changes as diffs, commands and patches."""

import json
import shlex

import yaml

from scan.patches.changes import MIB, change, container
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.rest.resources import JOBS, Resource
from trimtab.scan.patches.render import render_command, render_diff, render_manifest


def test_render_diff_shows_current_and_recommended_template() -> None:
    assert render_diff(change()) == (
        "--- shop/deployment/web now\n"
        "+++ shop/deployment/web recommended\n"
        "@@ -1,7 +1,7 @@\n"
        " - name: web\n"
        "   resources:\n"
        "     requests:\n"
        "-      cpu: '1'\n"
        "-      memory: 1Gi\n"
        "+      cpu: 100m\n"
        "+      memory: 64Mi\n"
        "     limits:\n"
        "-      memory: 2Gi\n"
        "+      memory: 128Mi\n"
    )


def test_render_command_sets_each_container() -> None:
    lines = render_command(change("web", container("web"), container("log"))).splitlines()
    assert lines == [
        f"kubectl set resources -n shop deployments.apps/web --containers={name} "
        "--requests=cpu=100m,memory=64Mi --limits=memory=128Mi"
        for name in ("web", "log")
    ]


def test_render_command_patches_to_remove_limit() -> None:
    words = shlex.split(render_command(change(after={"web": Resources(100, None, 64 * MIB, None)})))
    assert words[:7] == ["kubectl", "patch", "-n", "shop", "deployments.apps/web", "--type", "strategic"]
    (found,) = json.loads(words[-1])["spec"]["template"]["spec"]["containers"]
    assert found["resources"]["limits"] == {"memory": None}


def test_render_manifest_patches_only_resources() -> None:
    assert yaml.safe_load(render_manifest(change())) == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "template": {
                "spec": {
                    "containers": [
                        {
                            "name": "web",
                            "resources": {
                                "requests": {"cpu": "100m", "memory": "64Mi"},
                                "limits": {"memory": "128Mi"},
                            },
                        }
                    ]
                }
            }
        },
    }


def test_change_blocked_reason_explains_unsupported_kinds() -> None:
    rollouts = Resource("argoproj.io", "v1alpha1", "rollouts", "Rollout")
    assert "is immutable" in change(resource=JOBS).blocked_reason
    assert "--format manifests" in change(resource=rollouts).blocked_reason
    assert not change().blocked_reason
