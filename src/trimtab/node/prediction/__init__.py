"""Peak prediction: what production pods request and will not need."""

from trimtab.node.prediction.predictor import ALGORITHMS, Predictor, Spare

__all__ = ["ALGORITHMS", "Predictor", "Spare"]
