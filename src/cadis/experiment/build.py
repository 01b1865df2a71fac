"""Build the dataset, the partition, the federation and the model from options."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from cadis._io import NO_CALLBACKS, Callbacks
from cadis.algorithm.tasks import Task
from cadis.data import TABLE_PREFIXES, Dataset, Samples, Subsets, TableColumns, load
from cadis.data.partition import MultiCluster, Partition, partition_by_owner, read_partition
from cadis.engine import Federation
from cadis.errors import CadisError
from cadis.experiment.config import ExperimentConfig, Settings
from cadis.models import build_network
from cadis.options import DatasetOptions
from cadis.rng import derive_generator, derive_seed
from cadis.types import ClientId


@dataclass(frozen=True)
class Experiment:
    """Experiment that is ready to run; no option of ``config`` is "auto"."""

    config: ExperimentConfig
    federation: Federation
    model: nn.Module


def make_experiment(
    config: ExperimentConfig, callbacks: Callbacks = NO_CALLBACKS, dataset: Dataset | None = None
) -> Experiment:
    """Load the dataset unless it is given, split it among clients, and build the model."""
    dataset = dataset or load_dataset(config.settings, callbacks)
    config = choose_partition(config, dataset)
    num_outputs = count_outputs(config.algorithm.task, dataset.num_classes)
    partition = make_partition(config, dataset)
    if config.settings.model == "auto":
        _check_input_type(dataset.train)
    settings = config.settings.resolve_auto(len(partition.indices), get_input_shape(dataset))
    has_client_tests = settings.own_tests and settings.partition == "clients"
    federation = Federation(
        clients=Subsets(dataset.train, partition.indices),
        test=dataset.test,
        client_ids=partition.client_ids,
        true_clusters=partition.true_clusters,
        classes=dataset.classes,
        client_tests=get_client_tests(dataset, partition.client_ids) if has_client_tests else (),
        preprocessing=dataset.preprocessing,
    )
    model = make_model(settings, get_input_shape(dataset), num_outputs)
    return Experiment(replace(config, settings=settings), federation, model)


def _check_input_type(samples: Samples) -> None:
    """Raise an error for integer inputs, such as token ids: no built-in model takes them."""
    if samples.scaling is None and not samples.inputs.is_floating_point():
        raise CadisError(
            f"The inputs have type {samples.inputs.dtype}. If they are token ids, name your "
            "model with --model FILE.py:FUNCTION; else convert them to float32."
        )


def count_outputs(task: Task, num_classes: int) -> int:
    """Return the number of model outputs; raise an error if the task does not fit the classes."""
    num_outputs = task.num_outputs(num_classes)
    if task.num_classes(num_outputs) != num_classes:
        raise CadisError(
            f"The task {task.name} is for {task.num_classes(num_outputs)} classes, but the data "
            f"have {num_classes}; choose another task or other data."
        )
    return num_outputs


def load_dataset(settings: DatasetOptions, callbacks: Callbacks = NO_CALLBACKS) -> Dataset:
    """Load the dataset that the options name."""
    columns = TableColumns(
        settings.client_column,
        settings.label_column,
        settings.ignore_columns,
        settings.category_columns,
    )
    if columns != TableColumns() and not settings.dataset.startswith(TABLE_PREFIXES):
        raise CadisError(
            f"The dataset {settings.dataset} is not a table and has no columns; leave out the "
            "column options, or name a table with --dataset csv:PATH."
        )
    return load(
        settings.dataset,
        settings.data_dir,
        settings.offline,
        settings.image_size,
        callbacks,
        columns,
        settings.cache,
    )


def get_input_shape(dataset: Dataset) -> tuple[int, ...]:
    """Return the shape of one input: (channels, height, width), or (features,) for tables."""
    return tuple(dataset.train.inputs.shape[1:])


def make_partition(config: ExperimentConfig, dataset: Dataset) -> Partition:
    """Split the training data among clients; all methods with the same seed get the same split."""
    settings, labels = config.settings, dataset.train.labels
    name, minimum = settings.partition, settings.min_samples
    if name == "clients":
        partition = partition_by_owner(dataset.client_indices, minimum)
    elif name.endswith(".json"):
        partition = read_partition(Path(name), len(labels), settings.allow_overlap, minimum)
    else:
        generator = derive_generator(settings.seed, "partition")
        num_clients = settings.num_partition_clients
        partition = config.partitioner.split(labels, num_clients, minimum, generator)
    if settings.clients not in ("auto", len(partition.indices)):
        raise CadisError(
            f"The partition has {len(partition.indices)} clients, not {settings.clients}; leave "
            "out --clients, or choose a partition that takes any number of clients, such as mc."
        )
    return partition


def choose_partition(config: ExperimentConfig, dataset: Dataset) -> ExperimentConfig:
    """Replace the partition "auto" with a partition that fits the data.

    If the dataset names the client of each sample, the partition is "clients". Else it is "mc",
    with fewer clusters than the default if there are not enough classes or clients.
    """
    if config.settings.partition != "auto":
        return config
    partitioner, classes = config.partitioner, len(dataset.train.labels.unique())
    clients = config.settings.num_partition_clients
    if isinstance(partitioner, MultiCluster) and len(partitioner.ratio) > min(classes, clients):
        # The ratio n:...:2:1 needs n (n + 1) / 2 clients.
        clusters = max(n for n in range(1, classes + 1) if n == 1 or n * (n + 1) // 2 <= clients)
        partitioner = MultiCluster(ratio=tuple(range(clusters, 0, -1)))
    name = "clients" if dataset.client_indices else partitioner.name
    settings = replace(config.settings, partition=name)
    return replace(config, settings=settings, partitioner=partitioner)


def get_client_tests(dataset: Dataset, client_ids: Sequence[ClientId]) -> Sequence[Samples]:
    """Return the test samples of each client, or () if no client has test samples.

    A client without test samples has empty samples.
    """
    if dataset.client_tests:
        empty = dataset.test.take(slice(0, 0))
        return [dataset.client_tests.get(str(client), empty) for client in client_ids]
    if not dataset.client_test_indices:
        return ()
    no_indices = torch.zeros(0, dtype=torch.int64)
    indices = [dataset.client_test_indices.get(str(client), no_indices) for client in client_ids]
    return Subsets(dataset.test, tuple(indices)) if any(map(len, indices)) else ()


def make_model(settings: Settings, shape: tuple[int, ...], num_outputs: int) -> nn.Module:
    """Build the initial global model; its parameters depend only on the seed.

    Args:
        settings: settings without "auto".
        shape: the shape of one input: (channels, height, width), or (features,) for tables.
        num_outputs: the number of outputs of the model; for most tasks, one per class.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(settings.seed, "model"))
        return build_network(settings.model, shape, num_outputs)
