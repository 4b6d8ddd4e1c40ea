"""Peak prediction: the requested resources that production pods will not need."""

from trimtab.node.prediction.predictor import ALGORITHMS, Predictor, ResourceAmounts

__all__ = ["ALGORITHMS", "Predictor", "ResourceAmounts"]
