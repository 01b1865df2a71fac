"""Using a trained model: reading it back, predicting with it, and taking it elsewhere."""

from cadis.inference.exporting import (
    COMPARED_INPUTS,
    SUFFIXES,
    check_free,
    export,
    input_name,
    write_predictions,
)
from cadis.inference.predictor import Prediction, Predictor, load
