"""``cadis predict`` and ``cadis export``: use the model of a run."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from cadis._io import to_printable
from cadis.cli.guard import print_error
from cadis.data import TablePreprocessing
from cadis.errors import CadisError
from cadis.inference import (
    NUM_COMPARED_INPUTS,
    SUFFIXES,
    Prediction,
    Predictor,
    check_output_path,
    get_input_name,
    load,
    write_predictions,
)
from cadis.inference import export as export_model
from cadis.report.console import SafeConsole
from cadis.report.terminal import print_line, show_loading


def predict(
    run: Path, inputs: Path, out: Path, overwrite: bool, label: str | None = None, **selection: Any
) -> int:
    """Write predictions to a file and show a summary; return 1 if an input could not be read.

    ``selection`` are arguments of :func:`cadis.load` that select the model.
    """
    check_output_path(out, overwrite)
    predictor, console = load(run, **selection), SafeConsole()
    with show_loading(console) as callbacks:
        messages: list[str] = []

        def say(sentence: str) -> None:
            messages.append(sentence)
            callbacks.say(sentence)

        counting = replace(callbacks, say=say)
        predictions = list(predictor.iter_predictions(inputs, counting, label))
    if not predictions:
        raise CadisError(f"{to_printable(inputs)} contains nothing that can be read.")
    model_inputs = predictor.description.inputs
    is_table = model_inputs is not None and isinstance(
        model_inputs.preprocessing, TablePreprocessing
    )
    write_predictions(out, predictions, predictor.classes, "row" if is_table else "file")
    print_line(console, repr(predictor))
    console.print(_make_table(predictor, predictions))
    print_line(console, f"Predictions for {len(predictions)} inputs: {to_printable(out)}")
    if messages:
        return print_error(f"Number of inputs that could not be read: {len(messages)}.", 1)
    return 0


def export(run: Path, to: str, overwrite: bool, out: Path | None = None, **selection: Any) -> int:
    """Export the model, and print how much its predictions differ from the original."""
    model = run if run.is_file() else run / ("best" if selection["which"] == "best" else "model")
    name = f"-{selection['name']}" if selection.get("name") else ""
    path = out or model.with_name(f"{model.stem}{name}{SUFFIXES[to]}")
    check_output_path(path, overwrite)
    predictor, console = load(run, **selection), SafeConsole()
    with console.status("Exporting ..."):
        difference = export_model(predictor, to, path, overwrite)
    print_line(console, f"Exported {predictor!r} to {to_printable(path)}.")
    sentence = "The file has the parameters only; load them with load_state_dict(torch.load(FILE))."
    if to != "state-dict":
        sentence = (
            f"It maps '{get_input_name(predictor)}' to 'probabilities', for batches of any size. "
            f"On {NUM_COMPARED_INPUTS} inputs it predicts the same classes as the original; the "
            f"largest difference between two probabilities is {difference:.1e}."
        )
    print_line(console, sentence)
    return 0


def _make_table(predictor: Predictor, predictions: Sequence[Prediction]) -> Table:
    """Return a table of predictions per class, with correct predictions if the truth is known."""
    known = [item for item in predictions if item.truth is not None]
    correct = [item for item in known if item.truth == item.label]
    table = Table()
    table.add_column("class", overflow="fold")
    columns: list[Counter[str | None]] = [Counter(item.label for item in predictions)]
    table.add_column("predicted", justify="right")
    if known:
        columns += [Counter(item.truth for item in known), Counter(item.truth for item in correct)]
        table.add_column("true", justify="right")
        table.add_column("correct", justify="right")
    for name in predictor.classes:
        if any(counts[name] for counts in columns):
            table.add_row(escape(name), *(str(counts[name]) for counts in columns))
    if known:
        table.add_section()
        table.add_row("accuracy", "", str(len(known)), f"{len(correct) / len(known):.3f}")
    return table
