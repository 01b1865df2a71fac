"""Inputs for ``cadis.run``, and folders that hold what a user would miss."""

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import nn

import cadis
from cadis.algorithm.methods import METHODS
from torture.experiments import Experiment
from torture.fuzzing_options import typed
from torture.mutation import ODD
from torture.outcomes import Case, LostError, SilentChangeError


def python_call(folder: Path, _base: Path, random: Random) -> Case:
    """``cadis.run`` with something odd; what it takes, it must be able to go on with."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    clients: list[Any] = [_examples(random) for _ in range(random.choice([0, 1, 2, 3, 3]))]
    given: dict[str, Any] = {"method": random.choice(list(METHODS)), "epochs": 1, "workers": 1}
    given |= {"client_ids": _with_one_odd(["a", "b", 3], clients, random)}
    given |= {"true_clusters": _with_one_odd([0, 0, 1], clients, random)}
    if random.random() < 0.3:
        name = random.choice(["epochs", "batch_size", "lr", "seed", "per_round", "test_clients"])
        given[name] = random.choice([value for value in ODD if value not in (2**31, 2**63)])
    if random.random() < 0.05:
        given["head"] = random.choice(["1", "0", "x", ""])
    test = _examples(random)

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


def own_files(folder: Path, _base: Path, random: Random) -> Case:
    """A folder in which a user keeps files, given as the place for results by mistake."""
    names = ["config.toml", "notes.txt", "history.jsonl", "study.json", "lock", "summary.json"]
    names += ["checkpoint/weights.pt", "thesis/chapter.tex", "model.safetensors", "report.html"]
    place = folder / "mine"
    for name in random.sample(names, random.randint(1, 4)):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        text = random.choice(["", "my own", "[tool]\nname = 1\n", '{"a": 1}\n', "rounds = 1\n"])
        (place / name).write_text(text)
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    some = Experiment("fedavg", rounds=1).begin(place)
    several = ["--seeds", "1", "--rounds", "1", "--epochs", "1", "--out", str(place)]
    arguments = random.choice(
        [
            some,
            some,
            Experiment("fedavg", rounds=1).resume(place),
            ["compare", "--methods", "fedavg", *several],
            ["sweep", "--grid", "lr=0.1", *several],
            ["deploy", "init", str(place), "--site", "a"],
        ]
    )
    held = sorted(str(path.relative_to(place)) for path in before)
    return f"cadis {arguments[0]} onto {held}", lambda: _spared(arguments, before, folder)


def _spared(arguments: list[str], before: Mapping[Path, bytes], folder: Path) -> None:
    """Whatever a command does, the user's files stay as they are."""
    try:
        typed(arguments, folder)
    finally:
        for path, content in before.items():
            if not path.is_file() or path.read_bytes() != content:
                raise LostError(f"{path.name} was deleted or overwritten")


def _examples(random: Random) -> Any:
    """Inputs and labels, mostly sound."""
    inputs, labels = torch.rand(6, 1, 2, 2), torch.tensor([0, 1, 2, 0, 1, 2])
    way = random.randrange(40)
    if way == 0:
        inputs[0, 0, 0, 0] = random.choice([float("nan"), float("inf")])
    elif way == 1:
        labels[0] = random.choice([-1, 3, 2**40])
    elif way == 2:
        labels = labels.to(random.choice([torch.float32, torch.bool, torch.int8, torch.complex64]))
    elif way == 3:
        inputs = inputs.to(random.choice([torch.float64, torch.uint8, torch.bool, torch.int64]))
    elif way == 4:
        inputs, labels = inputs[: random.randrange(6)], labels[: random.randrange(6)]
    elif way == 5:
        return random.choice([None, 3, (inputs,), (inputs, labels, labels), (None, None), "ab"])
    elif way == 6:
        inputs = random.choice([inputs.flatten(), inputs[..., 0], inputs[:, :, :1], inputs.sum()])
    return inputs, labels


def _with_one_odd(values: list[Any], clients: list[Any], random: Random) -> list[Any]:
    """A value for each client, one of which may be odd."""
    some = values[: len(clients)]
    if some and random.random() < 0.3:
        some[random.randrange(len(some))] = random.choice(ODD)
    return some
