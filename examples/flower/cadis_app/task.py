"""What is learned, and from whose data: the same for the server and all clients."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cadis import CadisError
from cadis._io.user_code import search_folder
from cadis.algorithm import KINDS
from cadis.data import Dataset, Examples, load_own
from cadis.engine import Federation
from cadis.experiment import ExperimentConfig, build_experiment, build_model, outputs_for, resolve
from cadis.options import OPTIONS
from cadis.store import ModelInputs

for folder in (Path(__file__).parents[1], Path(__file__).parent):
    search_folder(folder)  # files such as mymethod.py come with the app, wherever it is unpacked


@dataclass(frozen=True)
class Task:
    """A federation, as far as the run's config tells.

    Attributes:
        config: algorithm and settings, with nothing left to be chosen.
        model: the initial global model.
        classes: names of the classes.
        federation: who has what; None if only the sites know.
        inputs: what the model is given.
    """

    config: ExperimentConfig
    model: nn.Module
    classes: tuple[str, ...]
    federation: Federation | None
    inputs: ModelInputs


def read_task(run: Mapping[str, Any], clients: int) -> Task:
    """Return the task in a run's config, for so many clients unless it says how many.

    A process loads and splits the data once, however many messages it gets. The model is a copy,
    since it is trained in place.
    """
    task = _load_task(tuple(sorted(run.items())), clients)
    return replace(task, model=deepcopy(task.model))


@cache
def _load_task(items: tuple[tuple[str, Any], ...], clients: int) -> Task:
    run = dict(items)
    named = {name.replace("-", "_"): value for name, value in run.items()}
    given = {name: value for name, value in named.items() if name in (*KINDS, *OPTIONS)}
    if given["clients"] == "auto":
        given["clients"] = clients
    for option in str(run["options"]).split():
        name, _, value = option.partition("=")
        given[name.replace("-", "_")] = value
    if run["dataset"] == "sites":
        return _at_sites(run, given)
    built = build_experiment(resolve({}, given))
    settings = built.config.settings
    federation = built.federation.split(settings.client_test, settings.seed)  # as the engine does
    inputs = ModelInputs.of(federation.test, federation.preprocessing)
    return Task(built.config, built.model, federation.classes, federation, inputs)


def _at_sites(run: Mapping[str, Any], given: dict[str, Any]) -> Task:
    """Only names of classes and the shape of inputs are known."""
    classes = tuple(name.strip() for name in str(run["classes"]).split(",") if name.strip())
    if len(classes) < 2:
        raise CadisError("Name the classes that the sites have, as in classes='aspirin,ibuprofen'.")
    size = int(run["image-size"])
    shape = tuple(int(side) for side in (run["shape"] or f"3x{size}x{size}").split("x"))
    if len(shape) not in (1, 3) or prod(shape) < 1:
        raise CadisError(
            "Give the shape of one input as channels x height x width: '3x64x64', or as the number "
            "of its numbers: '20'."
        )
    config = resolve({}, {name: value for name, value in given.items() if name != "dataset"})
    settings = config.settings.resolve_auto(int(given["clients"]), shape)
    outputs = outputs_for(config.algorithm.task, len(classes))
    model = build_model(settings, shape, outputs)
    inputs = ModelInputs(shape, "float32")  # only the sites know how theirs are scaled
    return Task(replace(config, settings=settings), model, classes, None, inputs)


def task_at(node: Mapping[str, Any], run: Mapping[str, Any]) -> tuple[Task, Dataset]:
    """A client's task and its own data, as its ``--node-config`` says."""
    clients = int(node.get("num-partitions", 1))
    task = read_task(run, clients)
    place = node.get("images") or node.get("tensors")
    if place:
        settings = task.config.settings
        return task, _load_own(str(place), task.classes, settings.image_size, settings.cache)
    if task.federation is None:
        raise CadisError(
            "This site has no data: start it with --node-config 'images=\"FOLDER\"' or "
            "'tensors=\"FILE\"'."
        )
    known, number = len(task.federation.clients), node.get("partition-id")
    if number is None or not 0 <= int(number) < known:
        raise CadisError(
            "This site has no data: start it with --node-config 'partition-id=N num-partitions="
            f"{known}', N from 0 to {known - 1}."
        )
    mine, test = (
        part[int(number)] for part in (task.federation.clients, task.federation.tested_on())
    )
    return task, Dataset("partition", mine, test, task.classes)


@cache
def _load_own(place: str, classes: tuple[str, ...], image_size: int, cached: bool) -> Dataset:
    """Return a site's own data, which a process loads once."""
    return load_own(Path(place), classes, image_size, cache=cached)


def server_data(task: Task, run: Mapping[str, Any]) -> Examples | None:
    """What the server tests the global model on, if it has anything."""
    if run["test"]:
        settings = task.config.settings
        own = _load_own(str(run["test"]), task.classes, settings.image_size, settings.cache)
        return Examples(
            torch.cat([own.train.inputs, own.test.inputs]),
            torch.cat([own.train.labels, own.test.labels]),
            own.train.scaling,
        )
    return task.federation.test if task.federation is not None else None
