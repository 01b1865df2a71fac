"""The embedded engine: a federation on this machine."""

from collections.abc import Generator
from contextlib import closing
from copy import deepcopy
from math import isfinite
from pathlib import Path

from torch import nn

from cadis._io import NO_CALLBACKS, Callbacks
from cadis.algorithm import Algorithm, SecondsOf
from cadis.data import Examples
from cadis.engine.federation import EngineSettings, Federation
from cadis.engine.speeds import client_speeds, seconds_by_speed
from cadis.engine.transport import PoolTransport
from cadis.engine.worker import WorkerContext
from cadis.errors import CadisError, RunError
from cadis.models import FlatModel
from cadis.rng import one_thread
from cadis.server import DivergedError, RoundResult, RunState, Server, together
from cadis.training import (
    Evaluation,
    check_augmented,
    check_fit,
    choose_device,
    evaluate,
    found_head,
    may_stack,
    outputs_of,
)
from cadis.types import ModelState

_CLIENTS, _SAMPLES = 20, 64
"""Who is looked at when models diverge, and how much of what they have: enough to tell."""

_LARGE = 100.0
"""Inputs that networks are made for are around 1."""


class Engine:
    """Runs a federation on this machine, round by round.

    Attributes:
        given: the federation as it was given, with what clients hold out apart.
        algorithm: how it learns.
        layout: what is where in a model's vectors.
        num_classes: what the model tells apart.
        start: the state before the first round.
    """

    def __init__(
        self,
        module: nn.Module,
        federation: Federation,
        algorithm: Algorithm,
        settings: EngineSettings,
        client_folder: Path,
        head: str | None = None,
    ) -> None:
        """Check that all fits together; nothing is trained yet.

        Args:
            module: the initial global model, which is copied.
            federation: who takes part.
            algorithm: how to learn.
            settings: how to run.
            client_folder: where the clients' memories are kept, for methods that have any.
            head: name of the model's classifier layer; by default the one that is found.
        """
        found, num_outputs = found_head(module, federation.test)
        model = FlatModel(deepcopy(module), head or found, num_outputs)
        self.algorithm, self.layout = algorithm, model.layout
        self._client_folder = client_folder
        self.num_classes = algorithm.task.num_classes(model.num_outputs)
        federation.check(self.num_classes)
        self.given = federation = federation.split(settings.client_test, settings.seed)
        check_fit(model, federation.test, algorithm)
        check_augmented(federation.test.inputs, settings.local.augment)
        if not model.state().is_finite():
            raise CadisError("The initial model has a number that is infinite or not a number.")
        pools = algorithm.method.pools_clients
        taking_part = federation.pooled() if pools else federation
        self._server = Server(
            algorithm,
            model.layout.head_slices,
            settings.seed,
            taking_part.true_clusters_by_id(),
            model.layout.num_outputs,
            seconds_of=None if pools else _seconds_of(federation, settings),
        )
        self.start = self._server.start(model.state())
        device = choose_device(settings.device)
        self._per_round = _check_per_round(None if pools else settings.per_round, taking_part)
        on_cpu = device.type == "cpu"
        self._job = WorkerContext(
            module=deepcopy(module),
            head=head or found,
            num_outputs=num_outputs,
            algorithm=algorithm,
            federation=taking_part,
            owned=federation.tested_on(),
            settings=settings,
            device=device,
            stacks=settings.stack and on_cpu and may_stack(model, algorithm, settings.local),
        )

    def rounds(
        self, state: RunState, callbacks: Callbacks = NO_CALLBACKS
    ) -> Generator[RoundResult, None, None]:
        """Run the rounds that follow ``state``, up to the number in the settings."""
        transport = PoolTransport(
            self._job, self.given.client_ids, self._per_round, self._client_folder, callbacks
        )
        with one_thread(), closing(transport):
            try:
                yield from self._server.rounds(state, transport, self._job.settings.rounds)
            except DivergedError as error:
                raise RunError(f"{error.happened}; {self._cause(error.state)}") from None

    def model_of(self, state: ModelState) -> nn.Module:
        """A model with these numbers."""
        return self._loaded(state).module

    def test(self, state: RunState) -> Evaluation | None:
        """Test the global models on the whole test set, in this process, as clients get them."""
        with one_thread():
            found = {
                name: evaluate(self._loaded(model), self.given.test, self.algorithm.task)
                for name, model in state.server.models.items()
            }
        return together(found, self._server.users(state, self.given.client_ids))

    def _loaded(self, state: ModelState) -> FlatModel:
        model = FlatModel(deepcopy(self._job.module), self._job.head, self._job.num_outputs)
        model.load(state)
        return model

    def _cause(self, state: RunState) -> str:
        """Say why models diverge in the round that begins with a state, and what to do.

        It is the end of a sentence: the model, the loss, the inputs, or the steps. The data are
        known to be finite.
        """
        federation, task, lr = (
            self._job.federation,
            self.algorithm.task,
            self._job.settings.local.lr,
        )
        smaller, losses = f"try a smaller learning rate than {lr:g}, such as {lr / 10:g}", []
        for place, client in enumerate(federation.client_ids[:_CLIENTS]):
            examples = federation.clients[place].take(slice(0, _SAMPLES))
            if (largest := _largest(examples)) > _LARGE:
                whose = f"inputs of client {client} are as large as {largest:.3g}"
                return f"{whose}: bring them to about 1, or {smaller}."
            whose = f"for the data of client {client}, before any training in this round"
            name = self._server.model_name_for(state.server, client)
            outputs = outputs_of(self._loaded(state.server.models[name]), examples)[0]
            if not outputs.isfinite().all():
                look = "the data are finite: look at the model."
                return f"its outputs were so already {whose}; {look}"
            losses.append(float(task.loss(outputs, examples.labels, "mean")))
            if not isfinite(losses[-1]):
                look = f"the outputs are finite: look at the loss of the task '{task.name}'."
                return f"the loss was so already {whose}; {look}"
        mean = f"{sum(losses) / len(losses):.3g}"
        return f"data and outputs are finite, and the loss was {mean} at first: {smaller}."


def _largest(examples: Examples) -> float:
    """The largest input; numbers of words and the like are no amounts."""
    inputs = examples.scaled
    return float(inputs.abs().max()) if inputs.is_floating_point() else 0.0


def _seconds_of(federation: Federation, settings: EngineSettings) -> SecondsOf:
    """How long clients take for a round."""
    ids = federation.client_ids
    speeds = client_speeds(settings.speeds, ids, settings.seed)
    return seconds_by_speed(ids, federation.sizes(), settings.local.epochs, speeds)


def _check_per_round(asked: int | None, federation: Federation) -> int:
    """How many take part in a round, k; None for all."""
    number = len(federation.clients)
    if asked is not None and asked > number:
        raise CadisError(
            f"{asked} clients cannot take part in a round of a federation of {number}; "
            f"ask for at most {number}."
        )
    return number if asked is None else asked
