"""Peak prediction: what production pods request and will not need."""

from trimtab.node.prediction.predictor import ALGORITHMS, Predictor, ResourceAmounts

__all__ = ["ALGORITHMS", "Predictor", "ResourceAmounts"]
