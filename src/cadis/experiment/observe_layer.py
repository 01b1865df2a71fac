"""Observe the classifier layer: train models on some classes only, and keep their updates."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn

from cadis._io import NO_CALLBACKS, Callbacks
from cadis.algorithm import Algorithm, ServerRound, ServerState, Weighing, check_names
from cadis.algorithm.methods import FedAvg
from cadis.analysis import HeadProbe, Panel
from cadis.data import Dataset, Subsets
from cadis.engine import Engine, Federation
from cadis.errors import CadisError, RunError
from cadis.experiment.build import build_model, load_dataset, shape_of
from cadis.experiment.config import ExperimentConfig, Settings
from cadis.rng import generator_for
from cadis.types import ClientUpdate

_SAMPLES = 100  # what each model is trained on, where there are as many
_FEWEST = 4  # of a class: two clients share them, and batch norm wants two each


class HeadKeeping(FedAvg):
    """FedAvg whose server remembers the updates of the classifier layer: weight, then bias."""

    name: ClassVar[str] = "cadis layer"
    compares_heads: ClassVar[bool] = True

    def weigh(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Weighing:
        """The plain weights; the updates are (k, size of the part) each."""
        sent = state.models["model"].parameters
        kept = {
            f"head-{number}": torch.stack([u.model.parameters[part] for u in updates]) - sent[part]
            for number, part in enumerate(server_round.head)
        }
        return replace(super().weigh(server_round, updates, state), memory=kept)


def observe_layer(
    config: ExperimentConfig, classes: str = "", callbacks: Callbacks = NO_CALLBACKS
) -> HeadProbe:
    """Train the initial model on few classes, in one round, and look at its classifier layer.

    Args:
        config: what is trained on what, and how. Method, partition and rounds do not matter.
        classes: names of three or four classes, with commas. The first is trained on alone, and
            then with the third; alike clients have the first two, a stranger has the others. By
            default those that come first.
        callbacks: called as it goes on.
    """
    dataset = load_dataset(config.settings, callbacks)
    chosen, labels, seed = _chosen(classes, dataset), dataset.train.labels, config.settings.seed
    alike, strange = tuple(chosen[:2]), tuple(chosen[2:])
    plans = {  # classes, and which part of how many of their samples
        "one class": (alike[:1], 0, 1),
        "two classes": ((alike[0], strange[0]), 0, 1),
        "client 1": (alike, 0, 2),
        "client 2": (alike, 1, 2),
        "client 3": (strange, 0, 1),
    }
    dealt = tuple(_deal(labels, seed, *plan) for plan in plans.values())
    federation = Federation(
        Subsets(dataset.train, dealt),
        dataset.test.take(slice(0, 2)),  # to see whether the model fits: nobody asks how well
        client_ids=tuple(plans),
        classes=dataset.classes,
    )
    settings = config.settings.resolve_auto(len(plans), shape_of(dataset))
    model = build_model(settings, shape_of(dataset), dataset.num_classes)
    updates, has_bias = _train(model, settings, federation, callbacks)
    panels = tuple(
        Panel(title, own, len(indices), update)
        for (title, (own, *_)), indices, update in zip(plans.items(), dealt, updates, strict=True)
    )
    how = f"epochs {settings.epochs}, batch size {settings.batch_size}, learning rate {settings.lr}"
    names = dataset.name, settings.model
    return HeadProbe(*names, how, dataset.classes, has_bias, panels[:2], panels[2:])


def _chosen(classes: str, dataset: Dataset) -> list[int]:
    """Numbers of the classes that the user names; by default the first that have samples."""
    counts = dataset.train.labels.bincount(minlength=dataset.num_classes).tolist()
    if not classes:
        chosen = [number for number, count in enumerate(counts) if count >= _FEWEST][:4]
    else:
        names = [name.strip() for name in classes.split(",")]
        check_names("class", names, dataset.classes)
        chosen = [dataset.classes.index(name) for name in dict.fromkeys(names)]
        if scarce := [dataset.classes[n] for n in chosen if counts[n] < _FEWEST]:
            few = ", ".join(scarce)
            raise CadisError(f"Choose classes of at least {_FEWEST} training samples, not {few}.")
    if not 3 <= len(chosen) <= 4:
        there = f"{len(chosen)} are named" if classes else f"{dataset.name} has {len(chosen)}"
        raise CadisError(
            f"It takes three or four classes of at least {_FEWEST} training samples each; {there}."
        )
    return chosen


def _deal(labels: Tensor, seed: int, trained: tuple[int, ...], turn: int, turns: int) -> Tensor:
    """Return samples of the classes that are trained on: part ``turn`` of ``turns`` of each."""
    parts = []
    for number in trained:
        pool = (labels == number).nonzero()[:, 0]
        pool = pool[torch.randperm(len(pool), generator=generator_for(seed, "layer", number))]
        share = min(_SAMPLES // len(trained), len(pool) // turns)
        parts.append(pool[turn * share : (turn + 1) * share])
    return torch.cat(parts)


def _train(
    model: nn.Module, settings: Settings, federation: Federation, callbacks: Callbacks
) -> tuple[Tensor, bool]:
    """The clients' updates of the classifier layer, (k, classes, columns); is the last the bias?"""

    def progress(what: str, done: int, total: int) -> None:
        if what == "training clients":
            callbacks.progress(what, done, total)

    how = settings.for_engine()
    how = replace(how, rounds=1, per_round=None, test_clients=0, client_test=0.0, speeds="")
    engine = Engine(model, federation, Algorithm(HeadKeeping()), how, Path(), settings.head or None)
    (result,) = engine.rounds(engine.start, Callbacks(progress, callbacks.say))
    if gone := result.record.rejected:
        raise RunError(f"Of {gone[0].client}, {gone[0].reason}; try a smaller learning rate.")
    parts = result.state.server.memory.values()
    shape = (len(federation.clients), engine.num_classes, -1)
    return torch.cat([part.view(shape) for part in parts], dim=2), len(parts) == 2
