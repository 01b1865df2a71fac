"""``cadis predict`` and ``cadis export``: using the model of a run."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cadis._io import shown
from cadis.cli.guard import say
from cadis.data import TablePreprocessing
from cadis.errors import CadisError
from cadis.inference import (
    COMPARED_INPUTS,
    SUFFIXES,
    Prediction,
    Predictor,
    check_free,
    input_name,
    load,
    write_predictions,
)
from cadis.inference import export as export_model
from cadis.report.terminal import loading, tell


def predict(
    run: Path, inputs: Path, out: Path, overwrite: bool, label: str | None = None, **asked: Any
) -> int:
    """Predict, write the file, and show what came out; return 1 if any input was left out.

    Which model is ``asked`` for as of :func:`cadis.load`.
    """
    check_free(out, overwrite)
    predictor, console = load(run, **asked), Console()
    with loading(console) as callbacks:
        left_out: list[str] = []

        def leave_out(sentence: str) -> None:
            left_out.append(sentence)
            callbacks.say(sentence)

        counting = replace(callbacks, say=leave_out)
        found = list(predictor.predictions(inputs, counting, label))
    if not found:
        raise CadisError(f"Nothing in {shown(inputs)} can be read.")
    told = predictor.description.inputs
    rows = told is not None and isinstance(told.preprocessing, TablePreprocessing)
    write_predictions(out, found, predictor.classes, "row" if rows else "file")
    tell(console, repr(predictor))
    console.print(_table(predictor, found))
    tell(console, f"Predictions for {len(found)} inputs are in {shown(out)}.")
    if left_out:
        return say(f"Inputs that could not be read and were left out: {len(left_out)}.", 1)
    return 0


def export(run: Path, to: str, overwrite: bool, out: Path | None = None, **asked: Any) -> int:
    """Write the model for other programs, and say how it was checked."""
    model = run if run.is_file() else run / ("best" if asked["which"] == "best" else "model")
    name = f"-{asked['name']}" if asked.get("name") else ""
    path = out or model.with_name(f"{model.stem}{name}{SUFFIXES[to]}")
    check_free(path, overwrite)
    predictor, console = load(run, **asked), Console()
    with console.status("Exporting ..."):
        difference = export_model(predictor, to, path, overwrite)
    tell(console, f"{predictor!r} is now {shown(path)}.")
    sentence = "It holds the numbers alone: load_state_dict(torch.load(FILE)) takes them."
    if to != "state-dict":
        sentence = (
            f"It makes 'probabilities' of '{input_name(predictor)}', in batches of any size. "
            f"Compared with the model on {COMPARED_INPUTS} inputs: the same classes; the largest "
            f"difference of a probability is {difference:.1e}."
        )
    tell(console, sentence)
    return 0


def _table(predictor: Predictor, found: Sequence[Prediction]) -> Table:
    """How many of which class; and how many of them rightly, where the truth is known."""
    known = [each for each in found if each.truth is not None]
    right = [each for each in known if each.truth == each.label]
    table = Table()
    table.add_column("class", overflow="fold")
    columns: list[Counter[str | None]] = [Counter(each.label for each in found)]
    table.add_column("predicted", justify="right")
    if known:
        columns += [Counter(each.truth for each in known), Counter(each.truth for each in right)]
        table.add_column("truly", justify="right")
        table.add_column("of these found", justify="right")
    for name in predictor.classes:
        if any(counts[name] for counts in columns):
            table.add_row(escape(name), *(str(counts[name]) for counts in columns))
    if known:
        table.add_section()
        table.add_row("accuracy", "", str(len(known)), f"{len(right) / len(known):.3f}")
    return table
