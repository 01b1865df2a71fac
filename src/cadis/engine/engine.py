"""The engine: prepares the server and the workers of a federation on this machine.

:mod:`cadis.experiment` creates an :class:`Engine` for every run.
"""

from collections.abc import Generator
from contextlib import closing
from copy import deepcopy
from math import isfinite
from pathlib import Path

from torch import nn

from cadis._io import NO_CALLBACKS, Callbacks, check_memory
from cadis.algorithm import Algorithm, EstimateSeconds
from cadis.data import Samples
from cadis.engine.federation import EngineSettings, Federation
from cadis.engine.speeds import make_time_estimator, resolve_speeds
from cadis.engine.transport import PoolTransport
from cadis.engine.worker import WorkerContext
from cadis.errors import CadisError, RunError
from cadis.models import FlatModel
from cadis.rng import use_one_thread
from cadis.server import DivergedError, RoundResult, RunState, Server, combine_evaluations
from cadis.training import (
    Evaluation,
    can_stack,
    check_augmentations,
    check_model,
    choose_device,
    evaluate,
    find_head_and_outputs,
    forward_in_batches,
)
from cadis.types import ModelState

_MAX_CLIENTS, _MAX_SAMPLES = 20, 64
"""Numbers of clients, and of samples per client, that are checked when a model diverges."""

_INT64 = 8
"""Bytes of an integer."""

_LARGE_INPUT = 100.0
"""Inputs above this are a likely cause of divergence; networks expect inputs of about 1."""


class Engine:
    """Runs a federation on this machine, round by round.

    Attributes:
        federation: the federation, with held-out data split from the training data.
        algorithm: the method, sampler and other parts.
        layout: position of each tensor of the model in its flat vectors.
        num_classes: number of classes that the model predicts.
        start: state before the first round.
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
        """Check that the model, the data and the algorithm match; :meth:`rounds` starts training.

        Args:
            module: the initial global model, which is copied.
            federation: clients with their data, and the test set.
            algorithm: the method, sampler and other parts.
            settings: settings of the run.
            client_folder: folder for the clients' states, if the method has client states.
            head: name of the model's classifier layer; by default it is found automatically.
        """
        default_head, num_outputs = find_head_and_outputs(module, federation.test)
        head = head or default_head
        model = FlatModel(deepcopy(module), head, num_outputs)
        self.algorithm, self.layout = algorithm, model.layout
        self._client_folder = client_folder
        self.num_classes = algorithm.task.num_classes(model.num_outputs)
        counts = self.num_classes * max(self.num_classes, len(federation.clients))
        check_memory(
            _INT64 * counts,
            f"Counting the samples of {self.num_classes:,} classes",
            "give the model fewer outputs",
        )
        federation.check(self.num_classes)
        self.federation = federation = federation.hold_out(settings.client_test, settings.seed)
        check_model(model, federation.test, algorithm)
        check_augmentations(federation.test.inputs, settings.local.augment)
        if not model.copy_state().is_finite():
            raise CadisError(
                "The initial model has NaN or infinite parameters; check its initialization."
            )
        pools = algorithm.method.pools_clients
        train_federation = federation.pool() if pools else federation
        self._server = Server(
            algorithm,
            model.layout.head_slices,
            settings.seed,
            train_federation.true_clusters_by_id(),
            model.layout.num_outputs,
            buffers=model.layout.buffer_slices,
            estimate_seconds=None if pools else _make_estimate_seconds(federation, settings),
        )
        self.start = self._server.start(model.copy_state())
        device = choose_device(settings.device)
        per_round = None if pools else settings.per_round
        self._per_round = _resolve_per_round(per_round, len(train_federation.clients))
        is_cpu = device.type == "cpu"
        self._context = WorkerContext(
            module=deepcopy(module),
            head=head,
            num_outputs=num_outputs,
            algorithm=algorithm,
            federation=train_federation,
            test_sets=federation.get_client_evaluation_sets(),
            settings=settings,
            device=device,
            allow_stacks=settings.stack and is_cpu and can_stack(model, algorithm, settings.local),
        )

    def rounds(
        self, state: RunState, callbacks: Callbacks = NO_CALLBACKS
    ) -> Generator[RoundResult, None, None]:
        """Run the rounds after ``state``, up to the number in the settings; yield each result."""
        transport = PoolTransport(
            self._context,
            self.federation.client_ids,
            self._per_round,
            self._client_folder,
            callbacks,
        )
        with use_one_thread(), closing(transport):
            try:
                yield from self._server.rounds(state, transport, self._context.settings.rounds)
            except DivergedError as error:
                raise RunError(
                    f"{error.problem}; {self._explain_divergence(error.state)}"
                ) from None

    def make_model(self, state: ModelState) -> nn.Module:
        """Return a copy of the module with the parameters and buffers of ``state``."""
        return self._load_model(state).module

    def test(self, state: RunState) -> Evaluation | None:
        """Test the global models on the whole test set in this process.

        Returns:
            The evaluation over all clients, each with the model that it uses.
        """
        with use_one_thread():
            evaluations = {
                name: evaluate(self._load_model(model), self.federation.test, self.algorithm.task)
                for name, model in state.global_models.items()
            }
        client_models = self._server.list_client_models(state, self.federation.client_ids)
        return combine_evaluations(evaluations, client_models)

    def _load_model(self, state: ModelState) -> FlatModel:
        context = self._context
        model = FlatModel(deepcopy(context.module), context.head, context.num_outputs)
        model.load(state)
        return model

    def _explain_divergence(self, state: RunState) -> str:
        """Return the likely cause of divergence, and advice, as the end of an error message.

        The cause is the inputs, the model, the loss or the learning rate. The data are finite,
        since they were checked before.

        Args:
            state: state before the round in which the model diverged.
        """
        context, task = self._context, self.algorithm.task
        lr, federation = context.settings.local.lr, context.federation
        advice, losses = f"try a smaller learning rate than {lr:g}, such as {lr / 10:g}", []
        for index, client in enumerate(federation.client_ids[:_MAX_CLIENTS]):
            samples = federation.clients[index].take(slice(0, _MAX_SAMPLES))
            if (largest := _find_largest_input(samples)) > _LARGE_INPUT:
                cause = f"inputs of client {client} are as large as {largest:.3g}"
                return f"{cause}: scale them to about 1, or {advice}."
            where = f"for the data of client {client} before this round's training"
            name = self._server.model_name_for(state.server, client)
            model = self._load_model(state.server.models[name])
            outputs = forward_in_batches(model, samples)[0]
            if not outputs.isfinite().all():
                return (
                    f"its outputs were already NaN or infinite {where}; the data are finite, so "
                    "check the model."
                )
            losses.append(float(task.loss(outputs, samples.labels, "mean")))
            if not isfinite(losses[-1]):
                return (
                    f"the loss was already NaN or infinite {where}; the outputs are finite, so "
                    f"check the loss of the task '{task.name}'."
                )
        mean = f"{sum(losses) / len(losses):.3g}"
        return f"data and outputs are finite, and the loss before the round was {mean}; {advice}."


def _find_largest_input(samples: Samples) -> float:
    """Return the largest absolute value of the inputs; 0 for integers, such as word indices."""
    inputs = samples.scaled_inputs
    return float(inputs.abs().max()) if inputs.is_floating_point() else 0.0


def _make_estimate_seconds(federation: Federation, settings: EngineSettings) -> EstimateSeconds:
    """Return the function that estimates the simulated time of clients."""
    ids = federation.client_ids
    speeds = resolve_speeds(settings.speeds, ids, settings.seed)
    return make_time_estimator(ids, federation.sizes(), settings.local.epochs, speeds)


def _resolve_per_round(per_round: int | None, num_clients: int) -> int:
    """Return the number of participants in a round; None means all clients."""
    if per_round is not None and per_round > num_clients:
        raise CadisError(
            f"per_round is {per_round}, but the federation has only {num_clients} clients; set "
            f"per_round to at most {num_clients}."
        )
    return num_clients if per_round is None else per_round
