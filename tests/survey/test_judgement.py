"""What is said of a workload, from a picture that is made by hand."""

from typing import Any

import numpy as np

from harness.records import folded, workload
from trimtab.kube.cache import Cache
from trimtab.kube.ownership import OWNER, owner_uid
from trimtab.kube.pods import pods
from trimtab.kube.resources import STATEFUL_SETS
from trimtab.kube.workloads import Workload
from trimtab.operator.cohort import Sizing
from trimtab.sizing.recommendation import MIB
from trimtab.survey.findings import Surveyed
from trimtab.survey.judgement import Judge
from trimtab.survey.lessons import Lessons
from trimtab.survey.picture import Picture
from trimtab.survey.prices import Prices
from trimtab.usage.usage import PodContainer, Usage

STEP = 300.0
APP = {"name": "app", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
DB = workload("db", resource=STATEFUL_SETS, containers=(APP,))


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    owner = {"kind": "StatefulSet", "name": "db", "uid": DB.uid, "controller": True, "apiVersion": "apps/v1"}
    named = {"name": name, "namespace": "shop", "uid": name, "resourceVersion": "1", **metadata}
    return {"metadata": {**named, "ownerReferences": [owner]}, "spec": {"containers": [APP]}}


def test_a_pod_that_is_being_deleted_is_paid_for_no_more() -> None:
    picture = Picture()
    cache: Cache[Workload] = Cache({OWNER: owner_uid})
    cache.put(DB)
    picture._ownership.add(STATEFUL_SETS, cache)
    leaving = pod("db-2", deletionTimestamp="2026-11-16T10:00:00Z")
    for body in (pod("db-0"), pod("db-1"), leaving):
        picture.pods.put(folded(pods(), body))
    sizing, now = Sizing.of("percentile", {}), 100 * STEP
    lessons = Lessons(picture, [DB], [sizing], now=now)
    names = tuple(PodContainer("shop", f"db-{number}", "app") for number in range(3))
    cpu, memory = np.full((101, 3), 0.1), np.full((101, 3), 100.0 * MIB)
    lessons.take_in(Usage(names, 0.0, STEP, cpu, memory), until=now)
    found = Judge(picture, lessons, {"percentile": sizing}, Prices(), "told", now).surveyed(DB)
    assert isinstance(found, Surveyed)
    assert (found.replicas, found.instances) == (2, 2.0)
