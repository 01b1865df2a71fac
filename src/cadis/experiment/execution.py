"""Running an experiment: every round is on disk as it ends."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from cadis._io import NO_CALLBACKS, Callbacks
from cadis.algorithm import Algorithm
from cadis.algorithm.methods import label_of
from cadis.analysis import describe_federation
from cadis.data import Dataset
from cadis.engine import Engine, EngineSettings, Federation
from cadis.experiment.build import build_experiment
from cadis.experiment.config import ExperimentConfig
from cadis.rng import one_thread
from cadis.server import OnRound, RoundRecord
from cadis.store import ModelInputs, RunFolder, RunWriter
from cadis.types import ClientId

_MOST_NAMED = 10
"""Clients whose rejected updates are told one by one; of more, only the sum is told."""


@dataclass(frozen=True, repr=False)
class RunResult:
    """A finished run.

    Attributes:
        models: the global models after the last round, by name; most methods have one.
        history: a record for each round.
        summary: what ``summary.json`` holds, the confusion matrix included.
        folder: where everything is kept, if it is.
    """

    models: dict[str, nn.Module]
    history: list[RoundRecord]
    summary: dict[str, Any]
    folder: Path | None

    def __repr__(self) -> str:
        """In a few words: models and records are long."""
        rounds = self.summary["rounds"]
        told = [label_of(self.summary["method"]), f"{rounds} round{'s' * (rounds != 1)}"]
        if (last := self.summary["accuracy"]) is not None:
            told.append(f"accuracy {last:.3f}")
        if (best := self.summary["best_accuracy"]) is not None:
            told.append(f"best {best:.3f} in round {self.summary['best_round']}")
        if self.folder is not None:
            told.append(f"folder {self.folder}")
        return f"RunResult({', '.join(told)})"

    @property
    def model(self) -> nn.Module:
        """The global model after the last round; of several, the first."""
        return next(iter(self.models.values()))

    @property
    def accuracy(self) -> float:
        """Top-1 accuracy after the last round."""
        accuracy: float = self.summary["accuracy"]
        return accuracy


@dataclass(frozen=True)
class FederationRun:
    """A model, data and options that are ready to run.

    Attributes:
        model: the initial global model.
        federation: the clients and their data.
        algorithm: how to learn.
        settings: how to run.
        options: what ``config.toml`` is to hold.
        head: name of the classifier layer; None for the one that is found.
    """

    model: nn.Module
    federation: Federation
    algorithm: Algorithm
    settings: EngineSettings
    options: dict[str, Any]
    head: str | None

    def with_seed(self, seed: int) -> "FederationRun":
        """Return the same with another seed."""
        settings = replace(self.settings, seed=seed)
        return replace(self, settings=settings, options={**self.options, "seed": seed})

    def engine(self, folder: RunFolder) -> Engine:
        """Build the engine, which checks that everything fits together."""
        clients = folder.client_folder
        return Engine(
            self.model, self.federation, self.algorithm, self.settings, clients, self.head
        )

    @one_thread()  # small things are far quicker so, the more the busier the machine is
    def execute(
        self,
        folder: RunFolder,
        resume: bool = False,
        on_round: OnRound | None = None,
        callbacks: Callbacks = NO_CALLBACKS,
    ) -> RunResult:
        """Run all rounds, or those that are left, and keep everything in the folder."""
        engine = self.engine(folder)
        described = describe_federation(engine.given, engine.num_classes)
        evaluation, rejections = None, RejectionLog(callbacks.say)
        inputs = ModelInputs.of(engine.given.test, engine.given.preprocessing)
        with closing(RunWriter(folder, engine.algorithm, engine.layout, inputs)) as writer:
            say = callbacks.say
            state = writer.begin(engine.start, self.options, lambda _: described, resume, say)
            with closing(engine.rounds(state, callbacks)) as rounds:
                for result in rounds:
                    state, evaluation = result.state, result.evaluation
                    writer.keep(result.record, state)
                    rejections.hear(result.record)
                    if on_round is not None:
                        on_round(result)
            evaluation = evaluation or engine.test(state)  # a resumed run may have no round left
            summary = writer.finish(state, evaluation)
        rejections.finish()
        models = {name: engine.model_of(model) for name, model in state.server.models.items()}
        return RunResult(models, writer.history, summary, folder.path)


@one_thread()
def run_experiment(
    config: ExperimentConfig,
    out: Path,
    resume: bool = False,
    on_round: OnRound | None = None,
    callbacks: Callbacks = NO_CALLBACKS,
    dataset: Dataset | None = None,
) -> RunResult:
    """Run what the options describe, and keep everything in the folder ``out``.

    Args:
        config: the options.
        out: where to keep it.
        resume: whether to go on with the run in the folder.
        on_round: called with the result of each round.
        callbacks: called as it goes on.
        dataset: the one that the options name, if it is loaded already.
    """
    built = build_experiment(config, callbacks, dataset)
    settings, options = built.config.settings, built.config.to_dict()
    how, head = settings.for_engine(), settings.head or None
    run = FederationRun(built.model, built.federation, config.algorithm, how, options, head)
    return run.execute(RunFolder(out), resume, on_round, callbacks)


class RejectionLog:
    """Tell whose updates are left out: every client once, and the sum at the end."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._updates, self._clients = say, 0, set[ClientId]()

    def hear(self, record: RoundRecord) -> None:
        """Tell of clients that are left out for the first time."""
        for rejection in record.rejected:
            self._updates += 1
            if rejection.client not in self._clients:
                self._clients.add(rejection.client)
                if len(self._clients) <= _MOST_NAMED:
                    who = f"client {rejection.client}"
                    self._say(f"Round {record.round} is without {who}: {rejection.reason}.")

    def finish(self) -> None:
        """Tell how many it were, if not all of them have been told."""
        number = len(self._clients)
        if self._updates > min(number, _MOST_NAMED):
            whose = "one client" if number == 1 else f"{number} clients"
            self._say(f"{self._updates} updates of {whose} were left out; the records name them.")
