"""Run one experiment, and write each round to disk when it ends."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from cadis._io import NO_CALLBACKS, Callbacks
from cadis.algorithm import Algorithm
from cadis.algorithm.methods import get_method_label
from cadis.analysis import describe_federation
from cadis.data import Dataset
from cadis.engine import Engine, EngineSettings, Federation
from cadis.experiment.build import make_experiment
from cadis.experiment.config import ExperimentConfig
from cadis.rng import use_one_thread
from cadis.server import OnRound, RoundRecord
from cadis.store import ModelInputs, RunFolder, RunWriter
from cadis.types import ClientId

_MAX_NAMED = 10
"""Maximum number of clients whose rejected updates are reported; the others are counted."""


@dataclass(frozen=True, repr=False)
class RunResult:
    """Result of a finished run.

    Attributes:
        models: the global models after the last round, by name; most methods have one.
        history: one record per round.
        summary: the content of ``summary.json``, including the confusion matrix.
        folder: the folder with the files of the run; None if they were not kept.

    Example:
        >>> import torch, cadis
        >>> data = [(torch.randn(8, 4), torch.randint(2, (8,))) for _ in range(3)]
        >>> result = cadis.run(torch.nn.Linear(4, 2), data, data[0], rounds=1, method="fedavg")
        >>> len(result.history)
        1
    """

    models: dict[str, nn.Module]
    history: list[RoundRecord]
    summary: dict[str, Any]
    folder: Path | None

    def __repr__(self) -> str:
        """Return a short summary, since models and records are long."""
        rounds = self.summary["rounds"]
        facts = [get_method_label(self.summary["method"]), f"{rounds} round{'s' * (rounds != 1)}"]
        if (last := self.summary["accuracy"]) is not None:
            facts.append(f"accuracy {last:.3f}")
        if (best := self.summary["best_accuracy"]) is not None:
            facts.append(f"best {best:.3f} in round {self.summary['best_round']}")
        if self.folder is not None:
            facts.append(f"folder {self.folder}")
        return f"RunResult({', '.join(facts)})"

    @property
    def model(self) -> nn.Module:
        """Return the global model after the last round; if there are several, the first."""
        return next(iter(self.models.values()))

    @property
    def accuracy(self) -> float:
        """Return the top-1 accuracy after the last round, between 0 and 1."""
        accuracy: float = self.summary["accuracy"]
        return accuracy


@dataclass(frozen=True)
class FederationRun:
    """Model, data and options of one run.

    Attributes:
        model: the initial global model.
        federation: the clients and their data.
        algorithm: the method and the other parts of the algorithm.
        settings: the settings of the engine.
        options: the content of ``config.toml``.
        head: name of the classifier layer; None to detect it.
    """

    model: nn.Module
    federation: Federation
    algorithm: Algorithm
    settings: EngineSettings
    options: dict[str, Any]
    head: str | None

    def with_seed(self, seed: int) -> "FederationRun":
        """Return the same run with another seed."""
        settings = replace(self.settings, seed=seed)
        return replace(self, settings=settings, options={**self.options, "seed": seed})

    def make_engine(self, folder: RunFolder) -> Engine:
        """Build the engine, which checks that model, data and algorithm fit together."""
        clients = folder.client_folder
        return Engine(
            self.model, self.federation, self.algorithm, self.settings, clients, self.head
        )

    @use_one_thread()  # small tensor operations are faster without threads
    def execute(
        self,
        folder: RunFolder,
        resume: bool = False,
        on_round: OnRound | None = None,
        callbacks: Callbacks = NO_CALLBACKS,
    ) -> RunResult:
        """Run all rounds, or the remaining ones if ``resume``, and write all files of the run."""
        engine = self.make_engine(folder)
        description = describe_federation(engine.federation, engine.num_classes)
        evaluation, rejections = None, RejectionLog(callbacks.say)
        inputs = ModelInputs.from_samples(engine.federation.test, engine.federation.preprocessing)
        with closing(RunWriter(folder, engine.algorithm, engine.layout, inputs)) as writer:
            say = callbacks.say
            state = writer.begin(engine.start, self.options, lambda _: description, resume, say)
            with closing(engine.rounds(state, callbacks)) as rounds:
                for result in rounds:
                    state, evaluation = result.state, result.evaluation
                    writer.save_round(result.record, state)
                    rejections.add(result.record)
                    if on_round is not None:
                        on_round(result)
            evaluation = evaluation or engine.test(state)  # a resumed run may have no round left
            summary = writer.finish(state, evaluation)
        rejections.finish()
        models = {name: engine.make_model(model) for name, model in state.global_models.items()}
        return RunResult(models, writer.history, summary, folder.path)


@use_one_thread()
def run_experiment(
    config: ExperimentConfig,
    out: Path,
    resume: bool = False,
    on_round: OnRound | None = None,
    callbacks: Callbacks = NO_CALLBACKS,
    dataset: Dataset | None = None,
) -> RunResult:
    """Run the experiment that the options describe, and write its files to a folder.

    Args:
        config: the options.
        out: the folder of the run.
        resume: whether to continue the run in the folder.
        on_round: called with the result of each round.
        callbacks: called with progress and messages.
        dataset: the dataset, if it is already loaded.
    """
    experiment = make_experiment(config, callbacks, dataset)
    settings = experiment.config.settings
    run = FederationRun(
        experiment.model,
        experiment.federation,
        config.algorithm,
        settings.to_engine_settings(),
        experiment.config.to_dict(),
        settings.head or None,
    )
    return run.execute(RunFolder(out), resume, on_round, callbacks)


class RejectionLog:
    """Report rejected updates: each client once, and the number of updates at the end."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._updates, self._clients = say, 0, set[ClientId]()

    def add(self, record: RoundRecord) -> None:
        """Report clients whose update is rejected for the first time."""
        for rejection in record.rejected:
            self._updates += 1
            if rejection.client not in self._clients:
                self._clients.add(rejection.client)
                if len(self._clients) <= _MAX_NAMED:
                    update = f"the update of client {rejection.client}"
                    reason = f"was rejected: {rejection.reason}"
                    self._say(f"Round {record.round}: {update} {reason}.")

    def finish(self) -> None:
        """Report the number of rejected updates, unless each was reported already."""
        count = len(self._clients)
        if self._updates > min(count, _MAX_NAMED):
            clients = "one client" if count == 1 else f"{count} clients"
            self._say(
                f"{self._updates} updates of {clients} were rejected; history.jsonl lists them."
            )
