"""Random options in files, dictionaries, command lines and calls of ``cadis.run``."""

import contextlib
import io
from collections.abc import Mapping
from contextlib import chdir
from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st
from torch import nn

import cadis
from cadis._io import read_toml, to_toml
from cadis.algorithm.methods import METHODS
from cadis.cli.command_line import commands
from cadis.cli.options import run_options
from cadis.data import CategoryColumn, NumberColumn, TablePreprocessing
from cadis.experiment import ExperimentConfig, resolve
from cadis.store import ModelDescription, ModelInputs
from torture.disturbance import skip_figures
from torture.experiments import Experiment
from torture.harm import ODD_VALUES, WORDS, Draw, mutate_bytes
from torture.outcomes import Case, LostError, SilentChangeError

_NAMES = [str(option.name) for option in run_options()]
_PLAUSIBLE: dict[str, tuple[Any, ...]] = {
    "method": ("fedavg", "feddyn", "cadis", "CADIS", "none"),
    "dataset": ("digits", "mnist", "images:x", "images:", "nothing"),
    "partition": ("mc", "iid", "auto", "clients", "a.json", ".json", "nothing"),
    "model": ("mlp", "auto", "a:b", ":", "os:system", "nothing"),
    "ratio": ("3:2:1", "1", "0:0", "-1:1", "1:x", [1, 2], "9999999999:1"),
    "data_dir": WORDS,
    "head": WORDS,
    "seed": (0, 7, -1, 2**31, 2**63, 2**64, "12", "1_000", " 5 ", 1.0, True),
    "lr": (0.1, "0.1", 1e-320, 1e308, 10**30, "1e-3", ".5", "1_0.0", "auto", 1),
}
_NUMBERS = (1, 2, 50, "3", 0.25, "0.25", 1.0, "1.0", " 4", "٣", "1e2", True)
"""Values for options that are numbers."""

_LITERALS = ["1", "-1", "1e400", "nan", "inf", "[1]", "{a=1}", "true", "1979-05-27", "0x10", "["]
_LITERALS += ["99999999999999999999", "0.5", "[3,2]", r"'\'", '""', r'"a\nb"', '"auto"', '"3:2:1"']
_LITERALS += [r'"\u0000"', r'"\U0001F600"', r'"\x"']
"""Values in a TOML file."""

_X, _Y = torch.rand(6, 1, 2, 2), torch.tensor([0, 1, 2, 0, 1, 2])
_INVALID: list[Any] = [
    *[(_X.index_fill(0, torch.tensor([0]), value), _Y) for value in (torch.nan, torch.inf)],
    *[(_X, _Y.where(_Y > 0, value)) for value in (-1, 3, 2**40)],
    *[(_X, _Y.to(kind)) for kind in (torch.float32, torch.bool, torch.int8, torch.complex64)],
    *[(_X.to(kind), _Y) for kind in (torch.float64, torch.uint8, torch.bool, torch.int64)],
    *[(_X[:m], _Y[:n]) for m, n in ((0, 0), (0, 3), (3, 0), (5, 2), (1, 1), (5, 5))],
    *[(other, _Y) for other in (_X.flatten(), _X[..., 0], _X[:, :, :1], _X.sum())],
    *[None, 3, (_X,), (_X, _Y, _Y), (None, None), "ab"],
]
_EXAMPLES = st.sampled_from([(_X, _Y)] * 4 * len(_INVALID) + _INVALID)
"""Inputs and labels of a client, most often valid."""

_USER_FILES = ["config.toml", "notes.txt", "history.jsonl", "study.json", "lock", "summary.json"]
_USER_FILES += ["checkpoint/weights.pt", "thesis/chapter.tex", "model.safetensors", "report.html"]
_TEXTS = ["", "my own", "[tool]\nname = 1\n", '{"a": 1}\n', "rounds = 1\n"]


def draw_option_file(folder: Path, _base: Path, draw: Draw) -> Case:
    """Draw an options file with a changed line."""
    text = to_toml(resolve({}, {"method": draw(st.sampled_from(list(METHODS)))}).to_dict())
    path, lines = folder / "experiment.toml", text.splitlines()
    line = draw(st.integers(0, len(lines) - 1))
    lines[line] = f"{lines[line].split('=')[0]}= {draw(st.sampled_from(_LITERALS))}"
    content = "\n".join(lines).encode("utf-8", "surrogatepass")
    path.write_bytes(mutate_bytes(content, draw) if draw(st.booleans()) else content)
    return f"TOML, {lines[line]!r}", lambda: _check_roundtrip(resolve(read_toml(path), {}), folder)


def draw_options(folder: Path, _base: Path, draw: Draw) -> Case:
    """Draw a dictionary of options."""
    names = draw(st.lists(st.sampled_from(_NAMES), min_size=1, max_size=4, unique=True))
    options = {name: _draw_value(name, draw) for name in names}
    if draw(st.integers(0, 9)) == 9:
        options[str(draw(ODD_VALUES))[:20]] = 1
    return f"options {options!r}", lambda: _check_roundtrip(resolve({}, options), folder)


def draw_command_line(folder: Path, base: Path, draw: Draw) -> Case:
    """Draw a command line that does not train."""
    words = [word for word in WORDS if "\0" not in word]
    words += ["None", "inf", "1" * 100, "[1, 2]", "{'a': 1}"]
    choose = st.sampled_from
    path = draw(choose([*words, str(folder), str(folder / "none"), str(base)]))
    names = draw(st.lists(st.sampled_from(_NAMES), max_size=3, unique=True))
    values = {f"--{name.replace('_', '-')}": str(_draw_value(name, draw)) for name in names}
    extra = [part for option in values.items() for part in option]
    commands_to_draw = [
        ["presets", path],
        ["data", "--data-dir", path],
        ["data", "verify", draw(choose(["mnist", path])), "--data-dir", path],
        ["report", path],
        ["report", path, "--out", draw(choose(words))],
        ["watch", draw(choose([*words, str(folder)])), "--port", draw(choose(words))],
        ["run", "--resume", "--out", path, *extra],
        ["run", path, *extra, "--rounds", "0"],
        ["run", "--preset", path, *extra, "--rounds", "x"],
        ["compare", "--methods", path, *extra, "--rounds", "0"],
        ["sweep", "--grid", path, *extra, "--rounds", "0"],
        ["partition", *extra, "--clients", draw(choose(["0", *words])), "--offline"],
        [path, *extra],
    ]
    arguments = [
        part.encode("utf-8", "replace").decode() for part in draw(choose(commands_to_draw))
    ]
    return f"cadis {arguments!r}", lambda: run_cli(arguments, folder)


def run_cli(arguments: list[str], folder: Path) -> None:
    """Run the command in a folder, without output and figures."""
    skip_figures()
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        commands(arguments, prog_name="cadis")


def _check_roundtrip(config: ExperimentConfig, folder: Path) -> None:
    """Check that accepted options are the same after writing and reading."""
    path, before = folder / "written.toml", config.to_dict()
    text = to_toml(before)
    try:
        path.write_text(text, encoding="utf-8")
        after = resolve(read_toml(path), {}).to_dict()
    except (cadis.CadisError, UnicodeEncodeError) as error:
        raise SilentChangeError(f"accepted, but cannot be read again: {error}") from None
    if repr(after) != repr(before):
        changed = [key for key in before if repr(before[key]) != repr(after.get(key))]
        raise SilentChangeError(f"different after reading: {changed}")


def _draw_value(name: str, draw: Draw) -> Any:
    plausible = st.sampled_from(_PLAUSIBLE.get(name, _NUMBERS))
    return draw(st.one_of(plausible, plausible, ODD_VALUES))


def draw_python_call(folder: Path, _base: Path, draw: Draw) -> Case:
    """Draw a call of ``cadis.run``; a run that it accepts must also resume."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    clients = draw(st.lists(_EXAMPLES, max_size=3))
    options: dict[str, Any] = {"method": draw(st.sampled_from(list(METHODS)))}
    options |= {"epochs": 1, "workers": 1}
    options |= {"client_ids": _draw_with_one_odd(["a", "b", 3][: len(clients)], draw)}
    options |= {"true_clusters": _draw_with_one_odd([0, 0, 1][: len(clients)], draw)}
    if draw(st.integers(0, 2)) == 2:
        names = ["epochs", "batch_size", "lr", "seed", "per_round", "test_clients"]
        options[draw(st.sampled_from(names))] = draw(ODD_VALUES.filter(_is_quick))
    if draw(st.integers(0, 19)) == 19:
        options["head"] = draw(st.sampled_from(["1", "0", "x", ""]))
    test = draw(_EXAMPLES)

    def call() -> None:
        result = cadis.run(model, clients, test, rounds=1, out=folder / "run", **options)
        try:
            cadis.run(model, clients, test, rounds=2, out=folder / "run", resume=True, **options)
        except cadis.CadisError as error:
            text = f"accepted, but cannot be resumed: {error}"
            raise SilentChangeError(text) from None
        if len(result.history) != 1:
            raise SilentChangeError(f"{len(result.history)} rounds, not 1")

    return f"cadis.run {options!r}", call


def draw_comparison(folder: Path, _base: Path, draw: Draw) -> Case:
    """Draw a call of ``cadis.compare`` with one odd argument, which trains nothing."""
    names = ["methods", "seeds", "seed", "grid", "preset", "targets", "progress", "on_round"]
    names += ["track", "out", "rounds", "clients", "per_round", "ratio", "epochs", "workers"]
    name, value = draw(st.sampled_from(names)), draw(ODD_VALUES)
    options = {"methods": ["fedavg"], "seeds": 1, "dataset": "none.py:f", name: value}

    def call() -> None:
        with chdir(folder):  # an odd value of "out" may be the name of a folder
            cadis.compare(**options)

    return f"cadis.compare {name}={value!r}", call


def draw_prediction(_folder: Path, _base: Path, draw: Draw) -> Case:
    """Draw a prediction for an odd value; a row of a table may have it as a cell."""
    columns = (NumberColumn("age", 40.0, 10.0, False), CategoryColumn("sex", ("f", "m")))
    inputs = ModelInputs((3,), "float32", TablePreprocessing(columns))
    description = ModelDescription("", 2, "classification", ("no", "yes"), inputs)
    predictor, value = cadis.Predictor(nn.Linear(3, 2), description), draw(ODD_VALUES)
    rows = [value, {"age": [value], "sex": ["f"]}, {"age": [40], "sex": [value]}]
    chosen = draw(st.sampled_from(rows))

    def call() -> None:
        for prediction in predictor.predict(chosen):
            if not 0 <= prediction.probability <= 1:
                raise SilentChangeError(f"probability {prediction.probability}")

    return f"predict {chosen!r}", call


def draw_user_files(folder: Path, _base: Path, draw: Draw) -> Case:
    """Draw a folder with files of the user that is given as --out by mistake."""
    out = folder / "mine"
    names = st.lists(st.sampled_from(_USER_FILES), min_size=1, max_size=4, unique=True)
    for name in draw(names):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(draw(st.sampled_from(_TEXTS)))
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    experiment = Experiment("fedavg", rounds=1)
    study_options = ["--seeds", "1", "--rounds", "1", "--epochs", "1", "--out", str(out)]
    lines = [experiment.start(out), experiment.resume(out)]
    lines += [["sweep", "--grid", "lr=0.1", *study_options]]
    lines += [["compare", "--methods", "fedavg", *study_options]]
    lines += [["deploy", "init", str(out), "--site", "a"]]
    arguments = draw(st.sampled_from(lines))
    files = sorted(str(path.relative_to(out)) for path in before)
    return f"cadis {arguments[0]} on {files}", lambda: _check_unchanged(arguments, before, folder)


def _check_unchanged(arguments: list[str], before: Mapping[Path, bytes], folder: Path) -> None:
    """Run a command and check that the files of the user do not change."""
    try:
        run_cli(arguments, folder)
    finally:
        for path, content in before.items():
            if not path.is_file() or path.read_bytes() != content:
                raise LostError(f"{path.name} was deleted or overwritten")


def _is_quick(value: object) -> bool:
    """Return whether a value is small enough for a short training, or too large to be accepted."""
    return not isinstance(value, int | float) or not 100 < abs(value) <= 2**64


def _draw_with_one_odd(values: list[Any], draw: Draw) -> list[Any]:
    """Return the values; one may be replaced by an odd value."""
    if values and draw(st.integers(0, 2)) == 2:
        values[draw(st.integers(0, len(values) - 1))] = draw(ODD_VALUES)
    return values
