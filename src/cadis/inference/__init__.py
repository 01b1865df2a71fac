"""Using a trained model: reading it back, predicting with it, and taking it elsewhere."""

from cadis.inference.exporting import SUFFIXES, export, input_name
from cadis.inference.loading import load
from cadis.inference.predictor import Prediction, Predictor
from cadis.inference.writing import check_free, write_predictions

__all__ = [
    "SUFFIXES",
    "Prediction",
    "Predictor",
    "check_free",
    "export",
    "input_name",
    "load",
    "write_predictions",
]
