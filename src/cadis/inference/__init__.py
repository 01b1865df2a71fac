"""Using a trained model: reading it back, predicting with it, and taking it elsewhere."""

from cadis.inference.exporting import SUFFIXES, Exported, export, input_name
from cadis.inference.loading import load
from cadis.inference.predictor import Prediction, Predictor

__all__ = [
    "SUFFIXES",
    "Exported",
    "Prediction",
    "Predictor",
    "export",
    "input_name",
    "load",
]
