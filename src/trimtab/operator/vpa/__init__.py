"""VerticalPodAutoscaler objects that name Trimtab as their recommender."""
