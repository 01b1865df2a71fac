"""The embedded engine: a federation on this machine."""

from collections.abc import Generator
from contextlib import closing
from copy import deepcopy
from pathlib import Path

from torch import nn

from cadis._io import NO_CALLBACKS, Callbacks
from cadis.algorithm import Algorithm, SecondsOf
from cadis.engine.divergence import cause
from cadis.engine.federation import EngineSettings, Federation
from cadis.engine.shared_memory import SharedMemory
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
)
from cadis.types import ModelState


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
        self._module, self._settings, self._client_folder = (
            deepcopy(module),
            settings,
            client_folder,
        )
        found, self._num_outputs = found_head(module, federation.test)
        self._head = head or found
        model = FlatModel(deepcopy(module), self._head, self._num_outputs)
        self.algorithm, self.layout = algorithm, model.layout
        self.num_classes = algorithm.task.num_classes(model.num_outputs)
        federation.check(self.num_classes)
        self.given = federation = federation.split(settings.client_test, settings.seed)
        check_fit(model, federation.test, algorithm)
        check_augmented(federation.test.inputs, settings.local.augment)
        if not model.state().is_finite():
            raise CadisError("The initial model has a number that is infinite or not a number.")
        self._federation = federation.pooled() if algorithm.method.pools_clients else federation
        truth = self._federation.true_clusters_by_id()
        self._server = Server(
            algorithm,
            model.layout.head_slices,
            settings.seed,
            truth,
            model.layout.num_outputs,
            seconds_of=self._seconds_of(),
        )
        self.start = self._server.start(model.state())
        self._device = choose_device(settings.device)
        self._per_round = self._check_per_round()
        on_cpu = self._device.type == "cpu"
        self._stacks = settings.stack and on_cpu and may_stack(model, algorithm, settings.local)

    def rounds(
        self, state: RunState, callbacks: Callbacks = NO_CALLBACKS
    ) -> Generator[RoundResult, None, None]:
        """Run the rounds that follow ``state``, up to the number in the settings."""
        transport = PoolTransport(
            self._job,
            self._federation,
            self.given,
            self._settings,
            self._per_round,
            self._client_folder,
            callbacks,
        )
        with one_thread(), closing(transport):
            try:
                yield from self._server.rounds(state, transport, self._settings.rounds)
            except DivergedError as error:
                raise RunError(f"{error.happened}; {self._cause(error.state)}") from None

    def model_of(self, state: ModelState) -> nn.Module:
        """A model with these numbers."""
        return self._loaded(state).module

    def test(self, state: RunState) -> Evaluation | None:
        """Test the global models on the whole test set, in this process, as clients get them."""
        models = state.server.models
        with one_thread():
            found = {
                name: evaluate(self._loaded(model), self.given.test, self.algorithm.task)
                for name, model in models.items()
            }
        return together(found, self._server.users(state, self.given.client_ids))

    def _loaded(self, state: ModelState) -> FlatModel:
        model = FlatModel(deepcopy(self._module), self._head, self._num_outputs)
        model.load(state)
        return model

    def _cause(self, state: RunState) -> str:
        """Why models diverge in the round that begins with a state."""
        server, models = state.server, state.server.models
        task, lr = self.algorithm.task, self._settings.local.lr
        return cause(
            lambda client: self._loaded(models[self._server.model_name_for(server, client)]),
            self._federation,
            task,
            lr,
        )

    def _job(self, sent: SharedMemory, slots: tuple[SharedMemory, ...]) -> WorkerContext:
        """What workers are to know."""
        return WorkerContext(
            module=deepcopy(self._module),
            head=self._head,
            num_outputs=self._num_outputs,
            algorithm=self.algorithm,
            federation=self._federation,
            owned=self.given.tested_on(),
            settings=self._settings,
            device=self._device,
            sent=sent,
            slots=slots,
            stacks=self._stacks,
        )

    def _seconds_of(self) -> SecondsOf | None:
        """How long clients take for a round; nobody waits for one that has everybody's data."""
        if self.algorithm.method.pools_clients:
            return None
        ids, settings = self._federation.client_ids, self._settings
        speeds = client_speeds(settings.speeds, ids, settings.seed)
        return seconds_by_speed(ids, self._federation.sizes(), settings.local.epochs, speeds)

    def _check_per_round(self) -> int:
        """How many take part in a round, k."""
        number, asked = len(self._federation.clients), self._settings.per_round
        if self.algorithm.method.pools_clients or asked is None:
            return number
        if asked > number:
            raise CadisError(
                f"{asked} clients cannot take part in a round of a federation of {number}; "
                f"ask for at most {number}."
            )
        return asked
