"""Using a trained model: reading it back, predicting with it, and taking it elsewhere."""

from cadis.inference.loading import load
from cadis.inference.predictor import Prediction, Predictor

__all__ = ["Prediction", "Predictor", "load"]
