"""Inputs for what takes options: files, dictionaries, command lines, ``cadis.run``."""

import contextlib
import io
from collections.abc import Mapping
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
from cadis.experiment import ExperimentConfig, resolve
from torture.disturbance import sketch
from torture.experiments import Experiment
from torture.harm import ODD, WORDS, Draw, mutate_bytes
from torture.outcomes import Case, LostError, SilentChangeError

_NAMES = [str(option.name) for option in run_options()]
_FITTING: dict[str, tuple[Any, ...]] = {
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
"""What options that are numbers may be given."""

_LITERALS = ["1", "-1", "1e400", "nan", "inf", "[1]", "{a=1}", "true", "1979-05-27", "0x10", "["]
_LITERALS += ["99999999999999999999", "0.5", "[3,2]", r"'\'", '""', r'"a\nb"', '"auto"', '"3:2:1"']
_LITERALS += [r'"\u0000"', r'"\U0001F600"', r'"\x"']
"""Values in a file."""

_X, _Y = torch.rand(6, 1, 2, 2), torch.tensor([0, 1, 2, 0, 1, 2])
_UNSOUND: list[Any] = [
    *[(_X.index_fill(0, torch.tensor([0]), value), _Y) for value in (torch.nan, torch.inf)],
    *[(_X, _Y.where(_Y > 0, value)) for value in (-1, 3, 2**40)],
    *[(_X, _Y.to(kind)) for kind in (torch.float32, torch.bool, torch.int8, torch.complex64)],
    *[(_X.to(kind), _Y) for kind in (torch.float64, torch.uint8, torch.bool, torch.int64)],
    *[(_X[:m], _Y[:n]) for m, n in ((0, 0), (0, 3), (3, 0), (5, 2), (1, 1), (5, 5))],
    *[(other, _Y) for other in (_X.flatten(), _X[..., 0], _X[:, :, :1], _X.sum())],
    *[None, 3, (_X,), (_X, _Y, _Y), (None, None), "ab"],
]
_EXAMPLES = st.sampled_from([(_X, _Y)] * 4 * len(_UNSOUND) + _UNSOUND)
"""Inputs and labels of a client, mostly sound."""

_OWN = ["config.toml", "notes.txt", "history.jsonl", "study.json", "lock", "summary.json"]
_OWN += ["checkpoint/weights.pt", "thesis/chapter.tex", "model.safetensors", "report.html"]
_TEXTS = ["", "my own", "[tool]\nname = 1\n", '{"a": 1}\n', "rounds = 1\n"]


def option_file(folder: Path, _base: Path, draw: Draw) -> Case:
    """An experiment's file, whose text is changed."""
    text = to_toml(resolve({}, {"method": draw(st.sampled_from(list(METHODS)))}).to_dict())
    path, lines = folder / "experiment.toml", text.splitlines()
    line = draw(st.integers(0, len(lines) - 1))
    lines[line] = f"{lines[line].split('=')[0]}= {draw(st.sampled_from(_LITERALS))}"
    content = "\n".join(lines).encode("utf-8", "surrogatepass")
    path.write_bytes(mutate_bytes(content, draw) if draw(st.booleans()) else content)
    return f"TOML, {lines[line]!r}", lambda: _check_kept(resolve(read_toml(path), {}), folder)


def options(folder: Path, _base: Path, draw: Draw) -> Case:
    """Options as a program gives them."""
    names = draw(st.lists(st.sampled_from(_NAMES), min_size=1, max_size=4, unique=True))
    given = {name: _draw_value(name, draw) for name in names}
    if draw(st.integers(0, 9)) == 9:
        given[str(draw(ODD))[:20]] = 1
    return f"options {given!r}", lambda: _check_kept(resolve({}, given), folder)


def command_line(folder: Path, base: Path, draw: Draw) -> Case:
    """What somebody may type; nothing that trains."""
    words = [word for word in WORDS if "\0" not in word]
    words += ["None", "inf", "1" * 100, "[1, 2]", "{'a': 1}"]
    choose = st.sampled_from
    place = draw(choose([*words, str(folder), str(folder / "none"), str(base)]))
    names = draw(st.lists(st.sampled_from(_NAMES), max_size=3, unique=True))
    values = {f"--{name.replace('_', '-')}": str(_draw_value(name, draw)) for name in names}
    some = [part for option in values.items() for part in option]
    typed = [
        ["presets", place],
        ["data", "--data-dir", place],
        ["data", "verify", draw(choose(["mnist", place])), "--data-dir", place],
        ["report", place],
        ["report", place, "--out", draw(choose(words))],
        ["watch", draw(choose([*words, str(folder)])), "--port", draw(choose(words))],
        ["run", "--resume", "--out", place, *some],
        ["run", place, *some, "--rounds", "0"],
        ["run", "--preset", place, *some, "--rounds", "x"],
        ["compare", "--methods", place, *some, "--rounds", "0"],
        ["sweep", "--grid", place, *some, "--rounds", "0"],
        ["partition", *some, "--clients", draw(choose(["0", *words])), "--offline"],
        [place, *some],
    ]
    arguments = [part.encode("utf-8", "replace").decode() for part in draw(choose(typed))]
    return f"cadis {arguments!r}", lambda: type_command(arguments, folder)


def type_command(arguments: list[str], folder: Path) -> None:
    """Do what the command does in a folder; nothing is shown or drawn."""
    sketch()
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        commands(arguments, prog_name="cadis")


def _check_kept(config: ExperimentConfig, folder: Path) -> None:
    """What was accepted is the same when it is read back."""
    path, before = folder / "kept.toml", config.to_dict()
    text = to_toml(before)
    try:
        path.write_text(text, encoding="utf-8")
        after = resolve(read_toml(path), {}).to_dict()
    except (cadis.CadisError, UnicodeEncodeError) as error:
        raise SilentChangeError(f"accepted, but not to be read back: {error}") from None
    if repr(after) != repr(before):
        differing = [key for key in before if repr(before[key]) != repr(after.get(key))]
        raise SilentChangeError(f"read back otherwise: {differing}")


def _draw_value(name: str, draw: Draw) -> Any:
    fitting = st.sampled_from(_FITTING.get(name, _NUMBERS))
    return draw(st.one_of(fitting, fitting, ODD))


def python_call(folder: Path, _base: Path, draw: Draw) -> Case:
    """``cadis.run`` with something odd; what it takes, it must be able to go on with."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    clients = draw(st.lists(_EXAMPLES, max_size=3))
    given: dict[str, Any] = {"method": draw(st.sampled_from(list(METHODS)))}
    given |= {"epochs": 1, "workers": 1}
    given |= {"client_ids": _draw_with_one_odd(["a", "b", 3][: len(clients)], draw)}
    given |= {"true_clusters": _draw_with_one_odd([0, 0, 1][: len(clients)], draw)}
    if draw(st.integers(0, 2)) == 2:
        names = ["epochs", "batch_size", "lr", "seed", "per_round", "test_clients"]
        given[draw(st.sampled_from(names))] = draw(ODD.filter(_is_quick))
    if draw(st.integers(0, 19)) == 19:
        given["head"] = draw(st.sampled_from(["1", "0", "x", ""]))
    test = draw(_EXAMPLES)

    def call() -> None:
        result = cadis.run(model, clients, test, rounds=1, out=folder / "run", **given)
        try:
            cadis.run(model, clients, test, rounds=2, out=folder / "run", resume=True, **given)
        except cadis.CadisError as error:
            text = f"accepted at first, and then not to be resumed: {error}"
            raise SilentChangeError(text) from None
        if len(result.history) != 1:
            raise SilentChangeError(f"{len(result.history)} rounds, not one")

    return f"cadis.run {given!r}", call


def own_files(folder: Path, _base: Path, draw: Draw) -> Case:
    """A folder in which a user keeps files, given as the place for results by mistake."""
    place = folder / "mine"
    names = st.lists(st.sampled_from(_OWN), min_size=1, max_size=4, unique=True)
    for name in draw(names):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(draw(st.sampled_from(_TEXTS)))
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    some = Experiment("fedavg", rounds=1)
    several = ["--seeds", "1", "--rounds", "1", "--epochs", "1", "--out", str(place)]
    typed = [some.begin(place), some.resume(place), ["sweep", "--grid", "lr=0.1", *several]]
    typed += [["compare", "--methods", "fedavg", *several]]
    typed += [["deploy", "init", str(place), "--site", "a"]]
    arguments = draw(st.sampled_from(typed))
    held = sorted(str(path.relative_to(place)) for path in before)
    return f"cadis {arguments[0]} onto {held}", lambda: _check_spared(arguments, before, folder)


def _check_spared(arguments: list[str], before: Mapping[Path, bytes], folder: Path) -> None:
    """Whatever a command does, the user's files stay as they are."""
    try:
        type_command(arguments, folder)
    finally:
        for path, content in before.items():
            if not path.is_file() or path.read_bytes() != content:
                raise LostError(f"{path.name} was deleted or overwritten")


def _is_quick(value: object) -> bool:
    """Return whether a number is too small to train for long, or too large to be taken."""
    return not isinstance(value, int | float) or not 100 < abs(value) <= 2**64


def _draw_with_one_odd(values: list[Any], draw: Draw) -> list[Any]:
    """Return the values, one of which may be odd."""
    if values and draw(st.integers(0, 2)) == 2:
        values[draw(st.integers(0, len(values) - 1))] = draw(ODD)
    return values
