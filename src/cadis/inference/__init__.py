"""Load trained models, predict with them, and export them."""

from cadis.inference.exporting import (
    NUM_COMPARED_INPUTS,
    SUFFIXES,
    check_output_path,
    export,
    get_input_name,
    write_predictions,
)
from cadis.inference.predictor import Prediction, Predictor, load
