"""Changes in users' own manifests and Helm values."""

import pytest

from survey.patches.changes import change, container
from trimtab.errors import TrimtabError
from trimtab.kube.pods import Resources
from trimtab.kube.resources import CRON_JOBS
from trimtab.survey.patches.owned import in_manifests, in_values

MANIFESTS = """\
# the shop
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  template:
    spec:
      containers:
        - name: web   # serves
          image: web:1
          resources:
            requests: {cpu: 1, memory: 1Gi}
            limits:
              memory: 2Gi # twice
---
apiVersion: batch/v1
kind: CronJob
metadata:
  name: nightly
spec:
  jobTemplate:
    spec:
      template:
        spec:
          containers:
          - name: run
            image: run:1
"""


def test_manifests_keep_all_but_their_amounts() -> None:
    nightly = change("nightly", {"name": "run"}, resource=CRON_JOBS)
    elsewhere = change(namespace="bank")
    found, left = in_manifests({"shop.yaml": MANIFESTS, "empty.yaml": "\n"}, [change(), nightly, elsewhere])
    expected = MANIFESTS.replace("{cpu: 1, memory: 1Gi}", "{cpu: 100m, memory: 64Mi}").replace(
        "2Gi #", "128Mi #"
    )
    indent = " " * 12
    assert found == {
        "shop.yaml": expected
        + f"{indent}resources:\n{indent}  requests:\n{indent}    cpu: 100m\n{indent}    memory: 64Mi\n"
        f"{indent}  limits:\n{indent}    memory: 128Mi\n"
    }
    assert left == [elsewhere]


def test_a_file_without_the_container_is_told() -> None:
    with pytest.raises(TrimtabError, match=r"shop.yaml: Deployment shop/web has no container side there"):
        in_manifests({"shop.yaml": MANIFESTS}, [change("web", container("side"))])


SIZE = "requests: {cpu: 1, memory: 1Gi}, limits: {memory: 2Gi}"
SMALL = "requests: {cpu: 100m, memory: 64Mi}, limits: {memory: 128Mi}"


WITHOUT_NAMESPACE = MANIFESTS.replace(", namespace: shop", "").partition("---")[0]


def test_one_manifest_of_two_namespaces_is_sized_once_where_both_want_the_same() -> None:
    staging, live = change(namespace="staging"), change(namespace="live")
    once, _ = in_manifests({"web.yaml": WITHOUT_NAMESPACE}, [live])
    assert in_manifests({"web.yaml": WITHOUT_NAMESPACE}, [staging, live]) == (once, [])
    other = change(namespace="live", after={"web": Resources(200, None, 2**27, 2**28)})
    with pytest.raises(
        TrimtabError, match=r"names no namespace, and Deployment staging/web and Deployment live/web"
    ):
        in_manifests({"web.yaml": WITHOUT_NAMESPACE}, [staging, other])


def test_of_two_manifests_of_a_workload_none_is_guessed() -> None:
    files = {"live/web.yaml": WITHOUT_NAMESPACE, "staging/web.yaml": WITHOUT_NAMESPACE}
    with pytest.raises(
        TrimtabError, match=r"is in live/web.yaml, line 2 and in staging/web.yaml, line 2; say which"
    ):
        in_manifests(files, [change()])
    certain = {**files, "live/web.yaml": MANIFESTS}
    assert in_manifests(certain, [change()])[0].keys() == {"live/web.yaml"}


def test_an_overlay_that_says_nothing_of_the_container_is_not_meant() -> None:
    overlay = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 3}\n"
    files = {"a-overlay.yaml": overlay, "base.yaml": WITHOUT_NAMESPACE}
    assert in_manifests(files, [change()])[0].keys() == {"base.yaml"}


def values(text: str, *, release: str = "prod-web", **paths: str) -> tuple[str, list[str]]:
    return in_values(text, [change(release)], where="values.yaml", paths=paths)


@pytest.mark.parametrize(
    "text",
    [
        f"resources: {{{SIZE}}}\n",
        f"web:\n  resources: {{{SIZE}}} # ours\napi:\n  resources: {{{SIZE}}}\n".replace("api", "z"),
        f"images:\n  sizes: {{{SIZE}}}\n",
    ],
)
def test_values_are_found_by_what_the_container_has_and_by_its_name(text: str) -> None:
    after, missing = values(text)
    assert (after, missing) == (text.replace(SIZE, SMALL, 1), [])


def test_a_path_that_is_given_is_taken_even_where_nothing_stands() -> None:
    after, missing = values("front:\n  image: x\n", web="front.resources")
    assert missing == []
    assert after.startswith("front:\n  image: x\n  resources:\n    requests:\n      cpu: 100m\n")


def test_what_may_be_either_is_asked_for() -> None:
    text = f"a:\n  resources: {{{SIZE}}}\nb:\n  resources: {{{SIZE}}}\n"
    with pytest.raises(
        TrimtabError, match=r"may be sized by a.resources, b.resources; say by which: --helm-path"
    ):
        values(text)


def test_what_has_no_place_is_told() -> None:
    assert values("resources: {requests: {cpu: 7}}\n") == (
        "resources: {requests: {cpu: 7}}\n",
        ["Deployment shop/prod-web web"],
    )
    with pytest.raises(TrimtabError, match=r"--helm-path a.b.resources: values.yaml has no a.b"):
        values("a: 1\n", web="a.b.resources")


def test_one_place_for_two_namespaces_is_written_once() -> None:
    text = "resources: {requests: {cpu: 1, memory: 1Gi}, limits: {memory: 2Gi}}\n"
    both = [change(namespace="staging"), change(namespace="live")]
    found, missing = in_values(text, both, where="values.yaml", paths={})
    assert found == "resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {memory: 128Mi}}\n"
    assert not missing
