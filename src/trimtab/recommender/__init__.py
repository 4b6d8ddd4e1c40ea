"""Learn from usage and recommend requests and limits for every container."""

from typing import TYPE_CHECKING

from trimtab.lazy import lazy_exports

if TYPE_CHECKING:
    from trimtab.recommender.recommender import Recommender
    from trimtab.recommender.workload import ClusterConstraints, WorkloadRecommendation, recommend_workload

__all__ = ["ClusterConstraints", "Recommender", "WorkloadRecommendation", "recommend_workload"]

__getattr__ = lazy_exports(
    __name__,
    {
        "ClusterConstraints": "workload",
        "Recommender": "recommender",
        "WorkloadRecommendation": "workload",
        "recommend_workload": "workload",
    },
)
