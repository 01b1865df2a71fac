"""Model, algorithm and data of a run, for the ServerApp and the ClientApp."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

from torch import nn

from cadis import CadisError
from cadis._io.user_code import add_search_folder
from cadis.algorithm import KINDS
from cadis.data import Dataset, Samples, concatenate, load_site_data
from cadis.engine import Federation
from cadis.experiment import ExperimentConfig, count_outputs, make_experiment, make_model, resolve
from cadis.options import OPTIONS
from cadis.store import ModelInputs

for folder in (Path(__file__).parents[1], Path(__file__).parent):
    add_search_folder(folder)  # so that "mymethod.py:Mine" is found in the app


@dataclass(frozen=True)
class RunSetup:
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


def load_run_setup(run_config: Mapping[str, Any], num_clients: int) -> RunSetup:
    """Load model, algorithm and data of a run.

    Data are loaded and split once per process. The model is a copy, because training changes it.

    Args:
        run_config: the run config of the app.
        num_clients: number of clients to use if ``clients`` is "auto" in the run config.
    """
    setup = _load_run_setup(tuple(sorted(run_config.items())), num_clients)
    return replace(setup, model=deepcopy(setup.model))


@cache
def _load_run_setup(entries: tuple[tuple[str, Any], ...], num_clients: int) -> RunSetup:
    run_config = dict(entries)
    options = {
        name: value
        for key, value in entries
        if (name := key.replace("-", "_")) in (*KINDS, *OPTIONS)
    }
    if options["clients"] == "auto":
        options["clients"] = num_clients
    for assignment in str(run_config["options"]).split():
        key, _, value = assignment.partition("=")
        options[key.replace("-", "_")] = value
    if run_config["dataset"] == "sites":
        return _make_site_setup(run_config, options)
    experiment = make_experiment(resolve({}, options))
    settings = experiment.config.settings
    # "cadis run" holds out the same samples.
    federation = experiment.federation.hold_out(settings.client_test, settings.seed)
    inputs = ModelInputs.from_samples(federation.test, federation.preprocessing)
    return RunSetup(experiment.config, experiment.model, federation.classes, federation, inputs)


def _make_site_setup(run_config: Mapping[str, Any], options: dict[str, Any]) -> RunSetup:
    """Return the setup for sites with their own data, given class names and the shape of inputs."""
    names = str(run_config["classes"]).split(",")
    classes = tuple(name.strip() for name in names if name.strip())
    if len(classes) < 2:
        raise CadisError("Give the names of all classes, for example classes='aspirin,ibuprofen'.")
    size = int(run_config["image-size"])
    shape = tuple(int(side) for side in (run_config["shape"] or f"3x{size}x{size}").split("x"))
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
    return RunSetup(replace(config, settings=settings), model, classes, None, inputs)


def load_client_setup(
    node_config: Mapping[str, Any], run_config: Mapping[str, Any]
) -> tuple[RunSetup, Dataset]:
    """Load the setup of a run and the data of a client.

    Args:
        node_config: the node config, from ``--node-config`` of the SuperNode.
        run_config: the run config of the app.
    """
    setup = load_run_setup(run_config, int(node_config.get("num-partitions", 1)))
    path = node_config.get("images") or node_config.get("tensors")
    if path:
        return setup, _load_site_data(str(path), setup)
    if setup.federation is None:
        raise CadisError(
            "This site has no data: start it with --node-config 'images=\"FOLDER\"' or "
            "'tensors=\"FILE\"'."
        )
    count, index = len(setup.federation.clients), node_config.get("partition-id")
    if index is None or not 0 <= int(index) < count:
        raise CadisError(
            "This site has no data: start it with --node-config 'partition-id=N num-partitions="
            f"{count}', N from 0 to {count - 1}."
        )
    train = setup.federation.clients[int(index)]
    test = setup.federation.get_client_evaluation_sets()[int(index)]
    return setup, Dataset("partition", train, test, setup.classes)


def load_server_data(setup: RunSetup, run_config: Mapping[str, Any]) -> Samples | None:
    """Load the test set of the server, or return None if there is none."""
    if run_config["test"]:
        # The data were split into a training and a test set, as at a site. The server does not
        # train, so it tests on both.
        data = _load_site_data(str(run_config["test"]), setup)
        return concatenate([data.train, data.test])
    return setup.federation.test if setup.federation is not None else None


def _load_site_data(path: str, setup: RunSetup) -> Dataset:
    settings = setup.config.settings
    return _load_cached(path, setup.classes, settings.image_size, settings.cache)


@cache
def _load_cached(path: str, classes: tuple[str, ...], image_size: int, cache: bool) -> Dataset:
    """Load the data of a site, once per process."""
    return load_site_data(Path(path), classes, image_size, cache=cache)
