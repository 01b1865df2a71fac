"""Model, algorithm and data of a run, for the ServerApp and the ClientApp."""

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
from cadis.data import Dataset, Samples, load_site_data
from cadis.engine import Federation
from cadis.experiment import ExperimentConfig, count_outputs, make_experiment, make_model, resolve
from cadis.options import OPTIONS
from cadis.store import ModelInputs

for folder in (Path(__file__).parents[1], Path(__file__).parent):
    search_folder(folder)  # so that "mymethod.py:Mine" is found in the app


@dataclass(frozen=True)
class Task:
    """Model, algorithm and data of a run.

    Attributes:
        config: algorithm and settings; no value is "auto".
        model: the initial global model.
        classes: names of the classes.
        federation: the dataset split among clients; None if each site has its own data.
        inputs: description of the model's inputs.
    """

    config: ExperimentConfig
    model: nn.Module
    classes: tuple[str, ...]
    federation: Federation | None
    inputs: ModelInputs


def load_task(run: Mapping[str, Any], clients: int) -> Task:
    """Load the task of a run.

    Data are loaded and split once per process. The model is a copy, because training changes it.

    Args:
        run: the run config of the app.
        clients: number of clients to use if ``clients`` is "auto" in the run config.
    """
    task = _load_task(tuple(sorted(run.items())), clients)
    return replace(task, model=deepcopy(task.model))


@cache
def _load_task(items: tuple[tuple[str, Any], ...], clients: int) -> Task:
    run = dict(items)
    entries = {name.replace("-", "_"): value for name, value in run.items()}
    options = {name: value for name, value in entries.items() if name in (*KINDS, *OPTIONS)}
    if options["clients"] == "auto":
        options["clients"] = clients
    for option in str(run["options"]).split():
        name, _, value = option.partition("=")
        options[name.replace("-", "_")] = value
    if run["dataset"] == "sites":
        return _make_site_task(run, options)
    experiment = make_experiment(resolve({}, options))
    settings = experiment.config.settings
    federation = experiment.federation.hold_out(
        settings.client_test, settings.seed
    )  # like the engine
    inputs = ModelInputs.from_samples(federation.test, federation.preprocessing)
    return Task(experiment.config, experiment.model, federation.classes, federation, inputs)


def _make_site_task(run: Mapping[str, Any], options: dict[str, Any]) -> Task:
    """Return the task for sites with their own data, given class names and the shape of inputs."""
    classes = tuple(name.strip() for name in str(run["classes"]).split(",") if name.strip())
    if len(classes) < 2:
        raise CadisError("Give the names of all classes, for example classes='aspirin,ibuprofen'.")
    size = int(run["image-size"])
    shape = tuple(int(side) for side in (run["shape"] or f"3x{size}x{size}").split("x"))
    if len(shape) not in (1, 3) or prod(shape) < 1:
        raise CadisError(
            "Give the shape of one input as channels x height x width, for example '3x64x64', or "
            "as the number of features, for example '20'."
        )
    config = resolve({}, {name: value for name, value in options.items() if name != "dataset"})
    settings = config.settings.resolve_auto(int(options["clients"]), shape)
    num_outputs = count_outputs(config.algorithm.task, len(classes))
    model = make_model(settings, shape, num_outputs)
    inputs = ModelInputs(shape, "float32")  # the scaling is known only at the sites
    return Task(replace(config, settings=settings), model, classes, None, inputs)


def load_client_task(node: Mapping[str, Any], run: Mapping[str, Any]) -> tuple[Task, Dataset]:
    """Load the task and the data of a client.

    Args:
        node: the node config, from ``--node-config`` of the SuperNode.
        run: the run config of the app.
    """
    clients = int(node.get("num-partitions", 1))
    task = load_task(run, clients)
    path = node.get("images") or node.get("tensors")
    if path:
        settings = task.config.settings
        return task, _load_site_data(str(path), task.classes, settings.image_size, settings.cache)
    if task.federation is None:
        raise CadisError(
            "This site has no data: start it with --node-config 'images=\"FOLDER\"' or "
            "'tensors=\"FILE\"'."
        )
    count, index = len(task.federation.clients), node.get("partition-id")
    if index is None or not 0 <= int(index) < count:
        raise CadisError(
            "This site has no data: start it with --node-config 'partition-id=N num-partitions="
            f"{count}', N from 0 to {count - 1}."
        )
    train = task.federation.clients[int(index)]
    test = task.federation.get_client_evaluation_sets()[int(index)]
    return task, Dataset("partition", train, test, task.classes)


@cache
def _load_site_data(path: str, classes: tuple[str, ...], image_size: int, cache: bool) -> Dataset:
    """Load the data of a site, once per process."""
    return load_site_data(Path(path), classes, image_size, cache=cache)


def load_server_data(task: Task, run: Mapping[str, Any]) -> Samples | None:
    """Load the test set of the server, or return None if there is none."""
    if run["test"]:
        settings = task.config.settings
        data = _load_site_data(str(run["test"]), task.classes, settings.image_size, settings.cache)
        return Samples(
            torch.cat([data.train.inputs, data.test.inputs]),
            torch.cat([data.train.labels, data.test.labels]),
            data.train.scaling,
        )
    return task.federation.test if task.federation is not None else None
