"""Running an experiment: every round is on disk as it ends."""

import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from cadis.core import CadisError, ClientId
from cadis.data import Examples
from cadis.engine import (
    Device,
    Engine,
    EngineSettings,
    EngineState,
    Federation,
    RoundRecord,
    RoundResult,
)
from cadis.experiment.build import build_federation, build_model
from cadis.experiment.config import (
    ExperimentConfig,
    check_names,
    options_of,
    parameters_of,
    to_toml,
    validated,
)
from cadis.experiment.measures import describe_federation, summarise
from cadis.experiment.store import RunFolder
from cadis.methods import METHODS, Method

OnRound: TypeAlias = Callable[[RoundResult], None]

_MAY_CHANGE = ("rounds", "workers", "device")
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


def run(
    model: nn.Module,
    clients: Iterable[tuple[Tensor, Tensor]],
    test: tuple[Tensor, Tensor],
    *,
    rounds: int,
    method: Method | str = "cadis",
    per_round: int | None = None,
    epochs: int = 5,
    batch_size: int = 8,
    lr: float = 0.1,
    seed: int = 0,
    workers: int | Literal["auto"] = "auto",
    device: Device = "auto",
    head: str | None = None,
    client_ids: Sequence[ClientId] = (),
    clusters: Sequence[int] | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    on_round: OnRound | None = None,
) -> RunResult:
    """Train a model on a federation of your own.

    Args:
        model: the initial global model, any module with a linear classifier; it is not changed.
        clients: inputs and labels of each client.
        test: inputs and labels that the global model is tested on after every round.
        rounds: how many rounds.
        method: how to learn: a method such as ``CADIS(threshold=0.8)``, or the name of one.
        per_round: how many clients take part in a round, by default all.
        epochs: passes of a client over its data in a round.
        batch_size: examples in a step of SGD.
        lr: learning rate of SGD.
        seed: of everything random but the initial model, which is yours.
        workers: processes that train clients, or "auto": one for each core.
        device: "auto", "cpu", "cuda" or "mps".
        head: name of the classifier layer, by default the model's last linear layer.
        client_ids: names of the clients, by default their positions.
        clusters: the true cluster of each client, if known, to compare with what is found.
        out: a folder to keep everything in; without one, only the result is kept.
        resume: go on with the run in ``out``.
        on_round: called with the result of each round.
    """
    if resume and out is None:
        raise CadisError("Give the folder of the run to resume as out.")
    federation = Federation(
        clients=[_examples(client, f"Client {n}") for n, client in enumerate(clients)],
        test=_examples(test, "The test set"),
        client_ids=tuple(client_ids),
        cluster_of_client=None if clusters is None else torch.as_tensor(clusters),
    )
    local = {"epochs": epochs, "batch_size": batch_size, "lr": lr}
    given = {
        "rounds": rounds,
        "per_round": per_round,
        "seed": seed,
        "workers": workers,
        "device": device,
    }
    settings = validated(EngineSettings, given | {"local": local})
    chosen = _method(method)
    described = {"model": type(model).__name__, "clients": len(federation.clients)}
    options = options_of(chosen, described | given | local)
    with _folder_for(out) as folder:
        engine = Engine(model, federation, chosen, settings, folder.client_folder, head)
        result = _execute(engine, options, folder, resume, on_round)
    return result if out is not None else replace(result, folder=None)


def run_experiment(
    config: ExperimentConfig, out: Path, resume: bool = False, on_round: OnRound | None = None
) -> RunResult:
    """Run what the options describe, and keep everything in the folder ``out``."""
    federation = build_federation(config.settings)
    model = build_model(config.settings, federation)
    folder = RunFolder(out)
    settings = config.settings.for_engine()
    engine = Engine(model, federation, config.method, settings, folder.client_folder)
    return _execute(engine, config.to_dict(), folder, resume, on_round)


def _method(method: Method | str) -> Method:
    """A method with its parameters checked, also from its name."""
    if isinstance(method, str):
        check_names("method", [method], METHODS)
        return METHODS[method]()
    if isinstance(method, type):
        raise CadisError(f"Give a method such as {method.__name__}(), not its class.")
    return validated(type(method), parameters_of(method))


def _examples(pair: Sequence[Tensor], owner: str) -> Examples:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise CadisError(f"{owner} is not a pair of inputs and labels.")
    return Examples(*map(torch.as_tensor, pair))


def _execute(
    engine: Engine,
    options: Mapping[str, Any],
    folder: RunFolder,
    resume: bool,
    on_round: OnRound | None,
) -> RunResult:
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
    with closing(engine.rounds(state)) as rounds:
        for result in rounds:
            state = result.state
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
    summary = summarise(engine.method, history, described, engine.test(state.model))
    folder.write_json("summary.json", summary)
    return RunResult(model, history, summary, folder.path)


def _go_on(
    engine: Engine, options: Mapping[str, Any], described: dict[str, Any], folder: RunFolder
) -> tuple[EngineState, list[RoundRecord]]:
    """Where the run in the folder stopped; it must have been the same run."""
    before, given = folder.read_config(), tomllib.loads(to_toml(options))
    for key in sorted(before.keys() | given.keys()):
        was, now = before.get(key), given.get(key)
        if key not in _MAY_CHANGE and was != now:
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


@contextmanager
def _folder_for(out: Path | str | None) -> Iterator[RunFolder]:
    """The folder asked for, or one that is gone afterwards."""
    if out is not None:
        yield RunFolder(Path(out))
        return
    with tempfile.TemporaryDirectory(prefix="cadis-") as path:
        yield RunFolder(Path(path))
