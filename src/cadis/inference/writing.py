"""Predictions as a CSV file; a file that is there already is left alone."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

from cadis._io import shown, unwritable
from cadis.errors import CadisError
from cadis.inference.predictor import Prediction


def check_free(path: Path, overwrite: bool) -> None:
    """Refuse a place where a file is already, unless it may go."""
    if path.is_dir():
        raise CadisError(f"{shown(path)} is a folder; name a file by --out.")
    if path.exists() and not overwrite:
        raise CadisError(
            f"{shown(path)} is there already; choose another name by --out, or replace it by "
            "--overwrite."
        )


def write_predictions(
    path: Path, predictions: Iterable[Prediction], classes: Sequence[str], input_title: str
) -> None:
    """A row for each: its name, its class, how probable that is, and how probable each class is.

    Args:
        path: where.
        predictions: what to write.
        classes: names of the classes.
        input_title: of the first column: what inputs are, "file" or "row".
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([input_title, "predicted", "probability", *(f"p_{c}" for c in classes)])
            for each in predictions:
                numbers = (f"{p:.6g}" for p in (each.probability, *each.probabilities))
                writer.writerow([each.name, each.label, *numbers])
    except OSError as error:
        raise unwritable(path, error) from None
