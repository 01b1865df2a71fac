"""From options to a dataset, a partition, a federation and a model."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from cadis._io import NO_CALLBACKS, Callbacks
from cadis.algorithm.tasks import Task
from cadis.data import TABLES, Dataset, Examples, Subsets, TableColumns, load
from cadis.data.partition import MultiCluster, Partition, given_by_data, read_partition
from cadis.engine import Federation
from cadis.errors import CadisError
from cadis.experiment.config import ExperimentConfig, Settings
from cadis.models import build_network
from cadis.options import DatasetOptions
from cadis.rng import derive_seed, generator_for
from cadis.types import ClientId


@dataclass(frozen=True)
class Experiment:
    """All that options describe; of the options themselves, none is left to be chosen."""

    config: ExperimentConfig
    federation: Federation
    model: nn.Module


def build_experiment(
    config: ExperimentConfig, callbacks: Callbacks = NO_CALLBACKS, dataset: Dataset | None = None
) -> Experiment:
    """Load the dataset, unless it is given; deal, and make the model."""
    dataset = dataset or load_dataset(config.settings, callbacks)
    config = choose_partition(config, dataset)
    num_outputs = outputs_for(config.algorithm.task, dataset.num_classes)
    partition = build_partition(config, dataset)
    if config.settings.model == "auto":
        _check_numbers(dataset.train)
    settings = config.settings.resolve_auto(len(partition.indices), shape_of(dataset))
    own = settings.own_tests and settings.partition == "clients"
    federation = Federation(
        clients=Subsets(dataset.train, partition.indices),
        test=dataset.test,
        client_ids=partition.client_ids,
        true_clusters=partition.true_clusters,
        classes=dataset.classes,
        client_tests=own_tests_of(dataset, partition.client_ids) if own else (),
        preprocessing=dataset.preprocessing,
    )
    model = build_model(settings, shape_of(dataset), num_outputs)
    return Experiment(replace(config, settings=settings), federation, model)


def _check_numbers(examples: Examples) -> None:
    """Refuse to choose a model for tokens: ours take numbers that mean an amount."""
    if examples.scaling is None and not examples.inputs.is_floating_point():
        raise CadisError(
            f"The inputs have type {examples.inputs.dtype}: if they are the numbers of tokens, "
            "name a model with an embedding by --model FILE.py:FUNCTION, else make them float32."
        )


def outputs_for(task: Task, num_classes: int) -> int:
    """How many outputs a model needs for a task; refused if the task has other classes."""
    num_outputs = task.num_outputs(num_classes)
    if task.num_classes(num_outputs) != num_classes:
        raise CadisError(
            f"The task {task.name} tells {task.num_classes(num_outputs)} classes apart, but there "
            f"are {num_classes}; choose another task or other data."
        )
    return num_outputs


def load_dataset(settings: DatasetOptions, callbacks: Callbacks = NO_CALLBACKS) -> Dataset:
    """The dataset that the options name."""
    columns = TableColumns(
        settings.client_column,
        settings.label_column,
        settings.ignore_columns,
        settings.category_columns,
    )
    if columns != TableColumns() and not settings.dataset.startswith(TABLES):
        raise CadisError(
            f"{settings.dataset} is no table, which alone has columns; leave the options of "
            "columns out, or name a table by --dataset csv:PLACE."
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


def shape_of(dataset: Dataset) -> tuple[int, ...]:
    """Of one input: channels, height and width of a picture, or the numbers in a row."""
    return tuple(dataset.train.inputs.shape[1:])


def build_partition(config: ExperimentConfig, dataset: Dataset) -> Partition:
    """Split the training data among clients; the same for all methods with one seed."""
    settings, labels = config.settings, dataset.train.labels
    name, minimum = settings.partition, settings.min_samples
    if name == "clients":
        partition = given_by_data(dataset.owners, minimum)
    elif name.endswith(".json"):
        partition = read_partition(Path(name), len(labels), settings.allow_overlap, minimum)
    else:
        generator = generator_for(settings.seed, "partition")
        number = settings.clients_to_deal_to
        partition = config.partitioner.deal(labels, number, minimum, generator)
    if settings.clients not in ("auto", len(partition.indices)):
        raise CadisError(
            f"There are {len(partition.indices)} clients, not {settings.clients}; leave the number "
            "of clients out, or choose a partition that deals to as many as you like."
        )
    return partition


def choose_partition(config: ExperimentConfig, dataset: Dataset) -> ExperimentConfig:
    """Replace the partition "auto" by one that fits the data.

    It is the one that the data give; else clusters of unequal size, as many as there are classes
    and clients for.
    """
    if config.settings.partition != "auto":
        return config
    dealer, classes = config.partitioner, len(dataset.train.labels.unique())
    clients = config.settings.clients_to_deal_to
    if isinstance(dealer, MultiCluster) and len(dealer.ratio) > min(classes, clients):
        few = max(n for n in range(1, classes + 1) if n == 1 or n * (n + 1) // 2 <= clients)
        dealer = MultiCluster(ratio=tuple(range(few, 0, -1)))
    name = "clients" if dataset.owners else dealer.name
    return replace(config, settings=replace(config.settings, partition=name), partitioner=dealer)


def own_tests_of(dataset: Dataset, client_ids: Sequence[ClientId]) -> Sequence[Examples]:
    """Each client's own test examples, of which some may have none; empty if nobody has any."""
    if dataset.client_tests:
        nothing = dataset.test.take(slice(0, 0))
        return [dataset.client_tests.get(str(client), nothing) for client in client_ids]
    if not dataset.test_owners:
        return ()
    nobodys = torch.zeros(0, dtype=torch.int64)
    owned = [dataset.test_owners.get(str(client), nobodys) for client in client_ids]
    return Subsets(dataset.test, tuple(owned)) if any(map(len, owned)) else ()


def build_model(settings: Settings, shape: tuple[int, ...], num_outputs: int) -> nn.Module:
    """Return the initial global model of settings without "auto".

    The shape is that of an input: channels, height and width of a picture, or numbers in a row.
    The task says how many outputs it wants: with most, one for each class.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(settings.seed, "model"))
        return build_network(settings.model, shape, num_outputs)
