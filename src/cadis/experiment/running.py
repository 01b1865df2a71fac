"""Running an experiment: every round is on disk as it ends."""

import tomllib
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from torch import nn

from cadis.core import CadisError
from cadis.data import SILENT, Listener
from cadis.engine import Engine, EngineState, RoundRecord, RoundResult
from cadis.experiment.build import build_experiment
from cadis.experiment.config import ExperimentConfig
from cadis.experiment.measures import describe_federation, summarise
from cadis.experiment.store import RunFolder
from cadis.experiment.toml import to_toml

OnRound: TypeAlias = Callable[[RoundResult], None]

_MAY_CHANGE = ("rounds", "workers", "device", "data_dir", "offline")
"""What may differ when a run is resumed: none of it changes the rounds themselves."""


@dataclass(frozen=True)
class RunResult:
    """A finished run.

    Attributes:
        model: the global model after the last round.
        history: a record for each round.
        summary: what ``summary.json`` holds, the confusion matrix included.
        folder: where everything is kept, if it is.
    """

    model: nn.Module
    history: list[RoundRecord]
    summary: dict[str, Any]
    folder: Path | None

    @property
    def accuracy(self) -> float:
        """Top-1 accuracy after the last round."""
        return self.history[-1].accuracy


def run_experiment(
    config: ExperimentConfig,
    out: Path,
    resume: bool = False,
    on_round: OnRound | None = None,
    listener: Listener = SILENT,
) -> RunResult:
    """Run what the options describe, and keep everything in the folder ``out``."""
    built = build_experiment(config, listener)
    folder, settings = RunFolder(out), built.config.settings
    engine = Engine(
        built.model,
        built.federation,
        config.method,
        settings.for_engine(),
        folder.client_folder,
        settings.head or None,
    )
    return execute(engine, built.config.to_dict(), folder, resume, on_round, listener)


def execute(
    engine: Engine,
    options: Mapping[str, Any],
    folder: RunFolder,
    resume: bool,
    on_round: OnRound | None,
    listener: Listener = SILENT,
) -> RunResult:
    """Run an engine, or go on with its run, and keep everything in a folder.

    Args:
        engine: what to run.
        options: what ``config.toml`` is to hold.
        folder: where to keep it.
        resume: whether to go on with the run in the folder.
        on_round: called with the result of each round.
        listener: hears how a round goes.
    """
    described = describe_federation(engine.given, engine.num_classes)
    state = engine.start
    history: list[RoundRecord] = []
    if resume:
        state, history = _go_on(engine, options, described, folder)
    else:
        folder.create()
    folder.write_config(options)
    folder.write_json("federation.json", described)
    best = max((record.accuracy for record in history), default=-1.0)
    evaluation = None
    with closing(engine.rounds(state, listener)) as rounds:
        for result in rounds:
            state, evaluation = result.state, result.evaluation
            history.append(result.record)
            folder.append_history(result.record)
            if result.record.accuracy > best:
                best = result.record.accuracy
                folder.save_model("best.safetensors", engine.model_of(state.model))
            folder.checkpoint.save(state)
            if on_round is not None:
                on_round(result)
    model = engine.model_of(state.model)
    folder.save_model("model.safetensors", model)
    evaluation = evaluation or engine.test(state.model)  # a resumed run may have no round left
    summary = summarise(engine.method, history, described, evaluation)
    folder.write_json("summary.json", summary)
    return RunResult(model, history, summary, folder.path)


def _go_on(
    engine: Engine, options: Mapping[str, Any], described: dict[str, Any], folder: RunFolder
) -> tuple[EngineState, list[RoundRecord]]:
    """Where the run in the folder stopped; it must have been the same run."""
    before, given = folder.read_config(), tomllib.loads(to_toml(options))
    for key in sorted(before.keys() | given.keys()):
        was, now = before.get(key), given.get(key)
        moved = key == "dataset" and all(str(v).startswith("images:") for v in (was, now))
        if key not in _MAY_CHANGE and was != now and not moved:
            raise CadisError(
                f"The run in {folder.path} has {key} = {was}, not {now}; "
                "resume it with the same options, or start a new one."
            )
    if folder.read_json("federation.json") != described:
        raise CadisError(f"The run in {folder.path} has other clients or data; start a new one.")
    state = folder.checkpoint.load() or engine.start
    if state.model.parameters.shape != engine.start.model.parameters.shape:
        raise CadisError(f"The run in {folder.path} has a model of another size; start a new one.")
    if state.round > options["rounds"]:
        raise CadisError(
            f"The run in {folder.path} has {state.round} rounds already; ask for at least as many."
        )
    return state, folder.keep_history(state.round)
