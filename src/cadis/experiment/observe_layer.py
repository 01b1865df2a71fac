"""Train models on a few classes, and record their updates of the classifier layer."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn

from cadis._io import NO_CALLBACKS, Callbacks
from cadis.algorithm import Algorithm, ClientWeights, ServerRound, ServerState, check_names
from cadis.algorithm.methods import FedAvg
from cadis.analysis import HeadProbe, ProbedModel
from cadis.data import Dataset, Subsets
from cadis.engine import Engine, Federation
from cadis.errors import CadisError, RunError
from cadis.experiment.build import get_input_shape, load_dataset, make_model
from cadis.experiment.config import ExperimentConfig, Settings
from cadis.rng import derive_generator
from cadis.types import ClientUpdate

_SAMPLES = 100  # maximum number of training samples of each model
_MIN_SAMPLES = 4  # per class: two clients share them, and batch norm needs two samples per client


class HeadRecorder(FedAvg):
    """FedAvg that also stores the updates of the classifier layer: weight, then bias."""

    name: ClassVar[str] = "cadis layer"
    needs_head: ClassVar[bool] = True

    def weigh(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> ClientWeights:
        """Return the weights of FedAvg, and the updates of the layer, (participants, size)."""
        start = state.models["model"].parameters
        head_updates = {
            f"head-{n}": torch.stack([u.model.parameters[tensor_slice] for u in updates])
            - start[tensor_slice]
            for n, tensor_slice in enumerate(server_round.head)
        }
        return replace(super().weigh(server_round, updates, state), tensors=head_updates)


def observe_layer(
    config: ExperimentConfig, classes: str = "", callbacks: Callbacks = NO_CALLBACKS
) -> HeadProbe:
    """Train the initial model on a few classes for one round; return the classifier updates.

    Five models are trained. Two show the effect of classes: one is trained on the first class, one
    on the first and third class. Three belong to clients: clients 1 and 2 have different samples of
    the first two classes, client 3 has the remaining classes.

    Args:
        config: the options; the method, the partition and the number of rounds have no effect.
        classes: names of three or four classes, separated by commas. By default, the first four
            classes with enough samples.
        callbacks: called with progress and messages.
    """
    dataset = load_dataset(config.settings, callbacks)
    labels, seed = dataset.train.labels, config.settings.seed
    class_indices = _select_classes(classes, dataset)
    # Clients 1 and 2 share the first two classes; client 3 has the other classes.
    shared, other = tuple(class_indices[:2]), tuple(class_indices[2:])
    plans = {  # title -> (classes, part, num_parts), the arguments of _sample_indices
        "one class": (shared[:1], 0, 1),
        "two classes": ((shared[0], other[0]), 0, 1),
        "client 1": (shared, 0, 2),
        "client 2": (shared, 1, 2),
        "client 3": (other, 0, 1),
    }
    indices = tuple(_sample_indices(labels, seed, *plan) for plan in plans.values())
    federation = Federation(
        Subsets(dataset.train, indices),
        dataset.test.take(slice(0, 2)),  # required by the engine; the accuracy is not used
        client_ids=tuple(plans),
        classes=dataset.classes,
    )
    settings = config.settings.resolve_auto(len(plans), get_input_shape(dataset))
    model = make_model(settings, get_input_shape(dataset), dataset.num_classes)
    updates, has_bias = _train(model, settings, federation, callbacks)
    panels = tuple(
        ProbedModel(title, trained_classes, len(samples), update)
        for (title, (trained_classes, *_)), samples, update in zip(
            plans.items(), indices, updates, strict=True
        )
    )
    training = (
        f"epochs {settings.epochs}, batch size {settings.batch_size}, learning rate {settings.lr}"
    )
    names = dataset.name, settings.model
    return HeadProbe(*names, training, dataset.classes, has_bias, panels[:2], panels[2:])


def _select_classes(classes: str, dataset: Dataset) -> list[int]:
    """Return the indices of the named classes; by default, of the first with enough samples."""
    counts = dataset.train.labels.bincount(minlength=dataset.num_classes).tolist()
    if not classes:
        indices = [n for n, count in enumerate(counts) if count >= _MIN_SAMPLES][:4]
    else:
        names = [name.strip() for name in classes.split(",")]
        check_names("class", names, dataset.classes)
        indices = [dataset.classes.index(name) for name in dict.fromkeys(names)]
        if too_few := [dataset.classes[n] for n in indices if counts[n] < _MIN_SAMPLES]:
            raise CadisError(
                f"Choose classes with at least {_MIN_SAMPLES} training samples, not "
                f"{', '.join(too_few)}."
            )
    if not 3 <= len(indices) <= 4:
        actual = f"{len(indices)} are named" if classes else f"{dataset.name} has {len(indices)}"
        raise CadisError(
            f"This command needs three or four classes with at least {_MIN_SAMPLES} training "
            f"samples each; {actual}."
        )
    return indices


def _sample_indices(
    labels: Tensor, seed: int, classes: tuple[int, ...], part: int, num_parts: int
) -> Tensor:
    """Split each class into ``num_parts`` parts; return the sample indices of one part."""
    parts = []
    for label in classes:
        pool = (labels == label).nonzero()[:, 0]
        pool = pool[torch.randperm(len(pool), generator=derive_generator(seed, "layer", label))]
        size = min(_SAMPLES // len(classes), len(pool) // num_parts)
        parts.append(pool[part * size : (part + 1) * size])
    return torch.cat(parts)


def _train(
    model: nn.Module, settings: Settings, federation: Federation, callbacks: Callbacks
) -> tuple[Tensor, bool]:
    """Return the classifier updates, (clients, classes, columns), and whether there is a bias.

    The bias is the last column.
    """

    def progress(activity: str, done: int, total: int) -> None:
        if activity == "training clients":
            callbacks.progress(activity, done, total)

    one_round = replace(
        settings.to_engine_settings(),
        rounds=1,
        per_round=None,
        test_clients=0,
        client_test=0.0,
        speeds="",
    )
    head = settings.head or None
    engine = Engine(model, federation, Algorithm(HeadRecorder()), one_round, Path(), head)
    (result,) = engine.rounds(engine.start, Callbacks(progress, callbacks.say))
    if rejected := result.record.rejected:
        raise RunError(
            f"The update of {rejected[0].client} was rejected: {rejected[0].reason}; use a smaller "
            "learning rate."
        )
    head_tensors = result.state.server.tensors.values()
    shape = (len(federation.clients), engine.num_classes, -1)
    updates = torch.cat([tensor.view(shape) for tensor in head_tensors], dim=2)
    return updates, len(head_tensors) == 2
