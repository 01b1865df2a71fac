"""``cadis.run``: a model and a federation of one's own."""

import inspect
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import torch
from rich.console import Console
from torch import Tensor, nn

from cadis._io import NO_CALLBACKS
from cadis.algorithm import (
    KINDS,
    BaseMethod,
    check_names,
    given_algorithm,
    names_in,
    options_of,
    with_metric,
)
from cadis.algorithm.local_optimizers import LocalOptimizer
from cadis.algorithm.samplers import BaseSampler
from cadis.algorithm.server_optimizers import ServerOptimizer
from cadis.algorithm.tasks import Task
from cadis.algorithm.transforms import Transform
from cadis.data import Examples, Subsets, as_examples, by_name, joined, single
from cadis.engine import Federation, speeds_by_client
from cadis.errors import CadisError
from cadis.experiment.config import engine_settings
from cadis.experiment.execution import FederationRun, RunResult
from cadis.experiment.tracking import Tracking, call_each
from cadis.models import auto_lr
from cadis.options import Device, Precision
from cadis.report.terminal import run_progress
from cadis.server import OnRound
from cadis.store import RunFolder
from cadis.training import AUGMENTATIONS
from cadis.types import ClientId


def run(
    model: nn.Module,
    clients: Iterable[Any] | Mapping[ClientId, Any],
    test: Any = None,
    *,
    client_tests: Iterable[Any] | Mapping[ClientId, Any] = (),
    rounds: int,
    method: BaseMethod | str = "cadis",
    sampler: BaseSampler | str = "auto",
    server_optimizer: ServerOptimizer | str = "auto",
    transforms: Sequence[Transform | str] = (),
    task: Task | str = "classification",
    metric: str = "auto",
    local_optimizer: LocalOptimizer | str = "sgd",
    per_round: int | None = None,
    epochs: int = 5,
    batch_size: int = 8,
    lr: float | Literal["auto"] = "auto",
    augment: Sequence[str] = (),
    precision: Precision = "float32",
    seed: int = 0,
    workers: int | Literal["auto"] = "auto",
    device: Device = "auto",
    test_clients: int = 10,
    eval_every: int = 1,
    stack: bool = True,
    client_test: float = 0.0,
    speeds: str | Mapping[ClientId, float] | Sequence[float] = "",
    head: str | None = None,
    client_ids: Sequence[ClientId] = (),
    true_clusters: Sequence[int] | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    on_round: OnRound | None = None,
    progress: bool | None = None,
    track: str | None = None,
) -> RunResult:
    """Train a model on a federation of your own.

    Each part of the algorithm (method, sampler, server optimiser, transforms, task, local
    optimiser) is given as it is, such as ``CADIS(threshold=0.8)``, by the name of one of ours, or
    as ``"file.py:Class"``.

    Args:
        model: the initial global model, any module that makes one vector of logits of a sample; it
            is not changed. Some methods look at its classifier, which must be linear for them.
        clients: the data of each client, in a list, or in a dict by its name. Data are a pair of
            inputs and labels, a ``torch.utils.data.Dataset``, a DataLoader, a dataset of Hugging
            Face's ``datasets``, or examples of a loaded dataset.
        test: data that the global model is tested on; by default all of ``client_tests``.
        client_tests: data of each client that it is tested on and never trains on, in a list or
            a dict, as clients are; a client that has none may be left out of a dict.
        rounds: how many rounds.
        method: how to learn.
        sampler: who takes part in a round; "auto" is what the method goes with: for CADIS
            "clusters", for all others "uniform".
        server_optimizer: from the aggregated model to the next global one; "auto" likewise: for
            CADIS "momentum", for all others "plain".
        transforms: what is done to updates, in this order.
        task: what the model's outputs mean.
        metric: the measure that decides which round is best: "accuracy", "balanced_accuracy", "f1"
            or "auc"; "auto" is the task's own, for classification accuracy, for binary auc.
        local_optimizer: how clients step.
        per_round: how many clients take part in a round, by default all.
        epochs: passes of a client over its data in a round.
        batch_size: examples in a step of a client.
        lr: learning rate of the clients. "auto" is what ``cadis run`` takes for the model if it is
            one of ``cadis.models``, and 0.01 for all others.
        augment: how pictures are changed at random when they are trained on: "flip", "crop".
        precision: of the arithmetic in training: "float32", or "bf16", which is faster for large
            models on processors that know it; weights are kept in float32.
        seed: of everything random but the initial model, which is yours.
        workers: processes that train clients, or "auto": one for each core.
        device: "auto", "cpu", "cuda" or "mps".
        test_clients: after how many rounds, and the last, the global model is tested on clients'
            own data, of many clients on a sample of them; 0 is never.
        eval_every: after how many rounds, and the last, the global model is tested on the test set.
        stack: train several clients at once where the model is small; the results are the same but
            for rounding.
        client_test: what share of each client's samples is held out: the client never trains on
            them, and is tested on them instead of on its training data or ``client_tests``.
        speeds: samples a second that clients handle, for the simulated clock: by client, or one
            after the other; "LOW:HIGH" to draw them from, or a file "FILE.json"; by default
            everybody is equally fast.
        head: name of the classifier layer, by default the one that is found.
        client_ids: names of the clients, by default their positions.
        true_clusters: the true cluster of each client, if known, to compare with what is found.
        out: a folder to keep everything in; without one, only the result is kept.
        resume: go on with the run in ``out``.
        on_round: called with the result of each round.
        progress: whether to show how far it is; by default on a terminal and in a notebook.
        track: a tracker that is told as well: "tensorboard", "wandb" or "mlflow"; it wants ``out``.
    """
    options = dict(locals())  # all arguments by name
    if track is not None and out is None:
        raise CadisError("A tracker keeps its files in the folder of the run; give one as out.")
    if resume and out is None:
        raise CadisError("Give the folder of the run to resume as out.")
    planned = plan_run(options, build_federation(options))
    decides = planned.algorithm.task.headline
    with folder_for(out) as path, closing(Tracking(track, RunFolder(path))) as tracking:
        console, nothing = Console(stderr=True), nullcontext((None, NO_CALLBACKS))
        bar = run_progress(console, planned.settings.rounds, decides)
        with bar if is_shown(progress, console) else nothing as (shown, callbacks):
            heard = call_each(shown, on_round, tracking.log_round)
            result = planned.execute(RunFolder(path), resume, heard, replace(callbacks, say=warn))
        tracking.finish()
    return result if out is not None else replace(result, folder=None)


def run_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Complete the options of :func:`run` with the defaults of its signature."""
    try:
        bound = inspect.signature(run).bind(**given)
    except TypeError as error:
        raise CadisError(
            f"With a model of your own, give options as cadis.run takes them: {error}."
        ) from None
    bound.apply_defaults()
    return bound.arguments


def plan_run(options: Mapping[str, Any], federation: Federation) -> FederationRun:
    """Validate options and build the algorithm of a run.

    Args:
        options: all options of :func:`run` by name.
        federation: what :func:`build_federation` returns for them.
    """
    model = options["model"]
    lr = auto_lr(model) if options["lr"] == "auto" else options["lr"]
    speeds = _speeds(options["speeds"], federation.client_ids)
    augment = names_in(options["augment"])
    settings = engine_settings({**options, "lr": lr, "speeds": speeds, "augment": augment})
    check_names("augmentation", augment, AUGMENTATIONS)
    parts = given_algorithm(**{kind: options[kind] for kind in KINDS})
    algorithm = with_metric(parts, options["metric"])
    resolved = asdict(settings)
    resolved |= resolved.pop("local")
    described = {"model": type(model).__name__, "clients": len(federation.clients)}
    config = options_of(algorithm, described | resolved)
    return FederationRun(model, federation, algorithm, settings, config, options["head"])


def is_shown(progress: bool | None, console: Console) -> bool:
    """Return whether to show progress: as asked, else on a terminal and in a notebook."""
    looked_at = console.is_jupyter or (sys.stderr is not None and sys.stderr.isatty())
    return looked_at if progress is None else progress


def warn(sentence: str) -> None:
    """Warn of what a command would print to the terminal."""
    warnings.warn(sentence, stacklevel=2)


def build_federation(options: Mapping[str, Any]) -> Federation:
    """Build the federation of all options of :func:`run`.

    Inputs of 64 bits are converted to 32 bits, unless the model has parameters of 64 bits.
    """
    model, clients, client_ids = options["model"], options["clients"], options["client_ids"]
    if not isinstance(model, nn.Module):
        raise CadisError(f"The model must be a torch.nn.Module, not a {type(model).__name__}.")
    if isinstance(clients, Mapping) and not client_ids:
        client_ids = tuple(clients)
    own = _everybodys(clients, "Client")
    double = any(parameter.dtype == torch.float64 for parameter in model.parameters())
    convert = (lambda examples: examples) if double else single
    tests = _tests_of(options["client_tests"], tuple(client_ids) or tuple(range(len(own))))
    test, truth = options["test"], options["true_clusters"]
    if test is None and not any(map(len, tests)):
        raise CadisError("Give data that the global model is tested on, as test.")
    whole = as_examples(test, "The test set") if test is not None else joined([*filter(len, tests)])
    return Federation(
        clients=own if isinstance(own, Subsets) else [convert(each) for each in own],
        test=convert(whole),
        client_ids=tuple(client_ids),
        true_clusters=None if truth is None else _true_clusters(truth),
        client_tests=[convert(each if len(each) else whole.take(slice(0, 0))) for each in tests],
    )


def _everybodys(data: Any, what: str) -> Sequence[Examples]:
    """Everybody's examples; a client without a name yet is called by its position."""
    if isinstance(data, Subsets):  # which are in memory once
        return data
    if not isinstance(data, Iterable):
        raise CadisError(
            f"The clients must be a list of inputs and labels, not a {type(data).__name__}."
        )
    return [*by_name(data, what).values()]


def _tests_of(data: Any, ids: Sequence[ClientId]) -> Sequence[Examples]:
    """Each client's own test data, some of which may be empty; nothing if none has any."""
    if isinstance(data, Mapping):
        named = by_name(data, "The test data of")
        if strange := named.keys() - set(map(str, ids)):
            raise CadisError(f"There are test data of {min(strange)}, which is no client.")
        nothing = Examples(torch.zeros(0), torch.zeros(0, dtype=torch.int64))
        return [named.get(str(client), nothing) for client in ids] if named else ()
    tests = _everybodys(data, "The test data of")
    if len(tests) not in (0, len(ids)):
        raise CadisError(
            f"There are test data of {len(tests)} clients, but {len(ids)} clients; give some for "
            "each, or name them in a dict."
        )
    return tests


def _speeds(
    speeds: str | Mapping[ClientId, float] | Sequence[float], client_ids: Sequence[ClientId]
) -> object:
    """Speeds as settings hold them, which check the rest."""
    if isinstance(speeds, Mapping):
        return speeds_by_client(speeds, client_ids, "What is given as speeds")
    listed = isinstance(speeds, Iterable) and not isinstance(speeds, str)
    return tuple(speeds) if listed else speeds


def _true_clusters(clusters: Sequence[int]) -> Tensor:
    """The true clusters as numbers, (n,)."""
    try:
        numbers = torch.as_tensor(clusters)
    except (TypeError, ValueError, RuntimeError):
        numbers = torch.zeros(())  # of strings, None and the like there is no tensor
    if numbers.dim() != 1 or numbers.is_floating_point() or numbers.is_complex():
        raise CadisError("The true clusters must be a list of whole numbers, one for each client.")
    return numbers.long()


@contextmanager
def folder_for(out: Path | str | None) -> Iterator[Path]:
    """The folder asked for, or one that is gone afterwards."""
    if out is not None:
        yield Path(out)
        return
    with tempfile.TemporaryDirectory(prefix="cadis-") as path:
        yield Path(path)
