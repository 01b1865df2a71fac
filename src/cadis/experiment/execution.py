"""Running an experiment: every round is on disk as it ends."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from cadis._io import NO_CALLBACKS, Callbacks
from cadis.algorithm.methods import label_of
from cadis.analysis import describe_federation
from cadis.data import Dataset
from cadis.engine import Engine
from cadis.experiment.build import build_experiment
from cadis.experiment.config import ExperimentConfig
from cadis.experiment.rejection_log import RejectionLog
from cadis.rng import one_thread
from cadis.server import OnRound, RoundRecord
from cadis.store import ModelInputs, RunFolder, RunWriter


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
        told, rounds = [label_of(self.summary["method"])], self.summary["rounds"]
        told.append(f"{rounds} round{'s' * (rounds != 1)}")
        if (last := self.summary["accuracy"]) is not None:
            told.append(f"accuracy {last:.3f}")
        if (best := self.summary["best_accuracy"]) is not None:
            told.append(f"best {best:.3f} in round {self.summary['best_round']}")
        told += [] if self.folder is None else [f"folder {self.folder}"]
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


@one_thread()  # small things are far quicker so, the more the busier the machine is
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
    folder = RunFolder(out)
    built = build_experiment(config, callbacks, dataset)
    settings = built.config.settings
    engine = Engine(
        built.model,
        built.federation,
        config.algorithm,
        settings.for_engine(),
        folder.client_folder,
        settings.head or None,
    )
    return execute(engine, built.config.to_dict(), folder, resume, on_round, callbacks)


def execute(
    engine: Engine,
    options: Mapping[str, Any],
    folder: RunFolder,
    resume: bool,
    on_round: OnRound | None,
    callbacks: Callbacks = NO_CALLBACKS,
) -> RunResult:
    """Run an engine, or go on with its run, and keep everything in a folder.

    Args:
        engine: what to run.
        options: what ``config.toml`` is to hold.
        folder: where to keep it.
        resume: whether to go on with the run in the folder.
        on_round: called with the result of each round.
        callbacks: called as a round goes on.
    """
    described = describe_federation(engine.given, engine.num_classes)
    evaluation, rejections = None, RejectionLog(callbacks.say)
    inputs = ModelInputs.of(engine.given.test, engine.given.preprocessing)
    with closing(RunWriter(folder, engine.algorithm, engine.layout, inputs)) as writer:
        state = writer.begin(engine.start, options, lambda _: described, resume, callbacks.say)
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
