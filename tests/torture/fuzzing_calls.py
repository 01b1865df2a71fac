"""Inputs for ``cadis.run``, and folders that hold what a user would miss."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st
from torch import nn

import cadis
from cadis.algorithm.methods import METHODS
from torture.experiments import Experiment
from torture.fuzzing_options import type_command
from torture.mutation import ODD, Draw
from torture.outcomes import Case, LostError, SilentChangeError

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
