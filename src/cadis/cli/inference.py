"""``cadis predict`` and ``cadis export``: using the model of a run."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cadis._io import Callbacks, shown
from cadis.cli.guard import say
from cadis.data import TablePreprocessing
from cadis.errors import CadisError
from cadis.inference import (
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
    run: Path, inputs: Path, out: Path, label: str | None, asked: dict[str, Any], overwrite: bool
) -> int:
    """Predict, write the file, and show what came out; 1 if any input was left out."""
    check_free(out, overwrite)
    predictor, console = load(run, **asked), Console()
    with loading(console) as callbacks:
        left_out = _Counted(callbacks)
        found = list(predictor.predictions(inputs, left_out.callbacks, label))
    if not found:
        raise CadisError(f"Nothing in {shown(inputs)} can be read.")
    told = predictor.description.inputs
    rows = told is not None and isinstance(told.preprocessing, TablePreprocessing)
    write_predictions(out, found, predictor.classes, "row" if rows else "file")
    tell(console, repr(predictor))
    console.print(_table(predictor, found))
    tell(console, f"Predictions for {len(found)} inputs are in {shown(out)}.")
    if left_out.number:
        return say(f"Inputs that could not be read and were left out: {left_out.number}.", 1)
    return 0


def export(run: Path, to: str, out: Path | None, asked: dict[str, Any], overwrite: bool) -> int:
    """Write the model for other programs, and say how it was checked."""
    path = out or _beside(run, to, asked["which"], asked["name"])
    check_free(path, overwrite)
    predictor, console = load(run, **asked), Console()
    with console.status("Exporting ..."):
        written = export_model(predictor, to, path, overwrite)
    tell(console, f"{predictor!r} is now {shown(written.path)}.")
    if to == "state-dict":
        tell(console, "It holds the numbers alone: load_state_dict(torch.load(FILE)) takes them.")
        return 0
    tell(
        console,
        f"It makes 'probabilities' of '{input_name(predictor)}', in batches of any size. Compared "
        f"with the model on {written.inputs} inputs: the same classes; the largest difference of a "
        f"probability is {written.difference:.1e}.",
    )
    return 0


def _beside(run: Path, to: str, which: str, name: str | None) -> Path:
    """Where an exported model goes if nobody says: beside the one that it is made of."""
    model = run if run.is_file() else run / ("best" if which == "best" else "model")
    return model.with_name(f"{model.stem}{f'-{name}' if name else ''}{SUFFIXES[to]}")


class _Counted:
    """Callbacks that count what is said.

    Attributes:
        callbacks: to be given on.
        number: of sentences so far.
    """

    def __init__(self, callbacks: Callbacks) -> None:
        self.number = 0

        def say_and_count(sentence: str) -> None:
            self.number += 1
            callbacks.say(sentence)

        self.callbacks = Callbacks(callbacks.progress, say_and_count)


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
