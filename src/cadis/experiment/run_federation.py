"""``cadis.run``: train a model on the data of clients, from Python."""

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
from torch.nn.parameter import is_lazy

from cadis._io import (
    NO_CALLBACKS,
    check_flag,
    check_folder,
    check_function,
    check_list,
    check_text,
    escape_controls,
    expand_home,
)
from cadis.algorithm import (
    KINDS,
    BaseMethod,
    check_names,
    compose_algorithm,
    replace_metric,
    split_names,
    to_options,
)
from cadis.algorithm.local_optimizers import LocalOptimizer
from cadis.algorithm.samplers import BaseSampler
from cadis.algorithm.server_optimizers import ServerOptimizer
from cadis.algorithm.tasks import Task
from cadis.algorithm.transforms import Transform
from cadis.data import (
    Samples,
    Subsets,
    as_samples,
    concatenate,
    to_float32,
    to_samples_by_client,
)
from cadis.engine import Federation, select_speeds
from cadis.errors import CadisError
from cadis.experiment.config import select_engine_settings
from cadis.experiment.execution import FederationRun, RunResult
from cadis.experiment.tracking import Tracking, combine_callbacks
from cadis.models import get_auto_lr
from cadis.options import Device, Precision
from cadis.report.console import SafeConsole
from cadis.report.terminal import show_run_progress
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
    profiles: bool = True,
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
    """Train a model on the data of several clients with federated learning.

    Each part of the algorithm (method, sampler, server optimizer, transforms, task, local
    optimizer) is an instance such as ``CADIS(threshold=0.8)``, the name of a built-in part, or
    ``"file.py:Class"`` for your own class.

    Args:
        model: the initial global model: any module that maps a batch of inputs to logits,
            (batch, outputs). The module itself is not changed. Some methods use its classifier
            layer, which must then be an ``nn.Linear``.
        clients: the training data of each client, as a list, or as a dict by client name. The data
            of a client are a pair (inputs, labels) of tensors or arrays, a
            ``torch.utils.data.Dataset``, a DataLoader, a Hugging Face dataset, or
            ``cadis.data.Samples``.
        test: the test set of the global model, in one of these forms. By default, it consists of
            all ``client_tests``.
        client_tests: the test data of each client, on which it never trains, as a list or a dict
            like ``clients``. A dict may leave out clients without test data.
        rounds: number of rounds.
        method: the method. Default: "cadis".
        sampler: selects the participants of a round. Default "auto": "herding" for CADIS,
            "uniform" for most other methods.
        server_optimizer: computes the next global model from the aggregated model. Default "auto":
            "damped-momentum" for CADIS, "plain" for most other methods.
        transforms: applied to the updates of clients, in this order. Default: none.
        task: the meaning of the model's outputs, with its loss and metrics. Default:
            "classification".
        metric: the metric that selects the best round: "accuracy", "balanced_accuracy", "f1" or
            "auc". Default "auto": accuracy for classification, AUC for binary tasks.
        local_optimizer: the optimizer of the clients. Default: "sgd".
        per_round: number of participants per round. Default: all clients.
        epochs: local epochs per round. Default: 5.
        batch_size: batch size of local training. Default: 8.
        lr: learning rate of local training. Default "auto": for models of ``cadis.models`` the
            rate that ``cadis run`` uses, for other models 0.01.
        augment: data augmentation of images: "flip", "crop" or both. Default: none.
        precision: precision of training: "float32" (default), or "bf16", which is faster for large
            models on hardware that supports it. Parameters are stored in float32.
        seed: seed of all random numbers except the initial model. Default: 0.
        workers: number of worker processes. Default "auto": one per core.
        device: "auto" (default), "cpu", "cuda" or "mps".
        test_clients: number of rounds between tests of the global model on the data of clients; it
            is also tested after the last round. 0 means never. If there are many clients, a
            random sample of them is tested. Default: 10.
        eval_every: number of rounds between tests of the global model on the test set; it is also
            tested after the last round. Default: 1.
        stack: train several clients at once if the model is small; results differ only in
            rounding errors. Default: True.
        profiles: keep class profiles and similarities of clients in the history and the files of
            the run. If False, only labels of clusters are kept, and a finished run cannot be
            prolonged. Default: True.
        client_test: fraction of each client's samples to hold out, from 0 to below 1. The client
            does not train on them and is tested on them instead of on ``client_tests``. Default: 0.
        speeds: samples per second of each client, for the simulated clock: a dict or list, a file
            "FILE.json", or "LOW:HIGH" for random values. By default, all clients are equally fast.
        head: name of the classifier layer; by default, it is detected.
        client_ids: names of the clients; by default, their positions 0, 1, ...
        true_clusters: the true cluster of each client, if known. It is compared with the clusters
            that the method finds.
        out: folder for the files of the run; by default, only the result is kept.
        resume: whether to continue the run in ``out``.
        on_round: called with the result of each round.
        progress: whether to show progress; by default, on a terminal and in a notebook.
        track: tracker to log to: "tensorboard", "wandb" or "mlflow"; needs ``out``.

    Returns:
        The trained model, one record per round, and a summary.

    Raises:
        CadisError: if an argument is wrong or the data do not fit the model.
        RunError: if training fails, for example because all updates diverge.

    Example:
        >>> import torch, cadis
        >>> def sample(label):
        ...     return torch.randn(40, 2) + 3 * label, torch.full((40,), label)
        >>> clients = {"north": sample(0), "south": sample(1)}
        >>> test = [torch.cat(pair) for pair in zip(sample(0), sample(1))]
        >>> model = torch.nn.Linear(2, 2)
        >>> result = cadis.run(model, clients, tuple(test), rounds=3, method="fedavg")
        >>> len(result.history)
        3
    """
    options = dict(locals())  # all arguments by name
    check_arguments(options)
    if track is not None and out is None:
        raise CadisError("The tracker needs a folder for its files; give one as out.")
    if resume and out is None:
        raise CadisError("Give the folder of the run to resume, as out.")
    planned = plan_run(options, make_federation(options))
    metric_key = planned.algorithm.task.main_metric
    with open_folder(out) as path, closing(Tracking(track, RunFolder(path))) as tracking:
        console, no_bar = SafeConsole(stderr=True), nullcontext((None, NO_CALLBACKS))
        bar = show_run_progress(console, planned.settings.rounds, metric_key)
        with bar if should_show_progress(progress, console) else no_bar as (show_round, callbacks):
            on_each = combine_callbacks(show_round, on_round, tracking.log_round)
            result = planned.execute(RunFolder(path), resume, on_each, replace(callbacks, say=warn))
        tracking.finish()
    return result if out is not None else replace(result, folder=None)


def check_arguments(options: Mapping[str, Any]) -> None:
    """Raise an error if an argument of :func:`run` that is not an option has a wrong type.

    Options are validated when the algorithm is built.
    """
    for name in ("head", "track"):
        check_text(name, options[name])
    check_flag("resume", options["resume"])
    check_flag("progress", options["progress"], optional=True)
    check_function("on_round", options["on_round"])
    check_folder("out", options["out"])


def complete_options(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Add the defaults of :func:`run` to its keyword arguments."""
    try:
        bound = inspect.signature(run).bind(**arguments)
    except TypeError as error:
        raise CadisError(
            f"With a model object, give the arguments of cadis.run: {error}."
        ) from None
    bound.apply_defaults()
    return bound.arguments


def plan_run(options: Mapping[str, Any], federation: Federation) -> FederationRun:
    """Validate options and build the algorithm of a run.

    Args:
        options: all arguments of :func:`run` by name.
        federation: the result of :func:`make_federation` for these options.
    """
    model = options["model"]
    lr = get_auto_lr(model) if options["lr"] == "auto" else options["lr"]
    speeds = _convert_speeds(options["speeds"], federation.client_ids)
    augment = split_names(options["augment"])
    settings = select_engine_settings({**options, "lr": lr, "speeds": speeds, "augment": augment})
    check_names("augmentation", augment, AUGMENTATIONS)
    parts = compose_algorithm(**{kind: options[kind] for kind in KINDS})
    algorithm = replace_metric(parts, options["metric"])
    resolved = asdict(settings)
    resolved |= resolved.pop("local")
    resolved |= {"model": type(model).__name__, "clients": len(federation.clients)}
    resolved |= {"profiles": bool(options["profiles"])}
    config = to_options(algorithm, resolved)
    return FederationRun(model, federation, algorithm, settings, config, options["head"])


def should_show_progress(progress: bool | None, console: Console) -> bool:
    """Return whether to show progress: by default, on a terminal and in a notebook."""
    is_interactive = console.is_jupyter or (sys.stderr is not None and sys.stderr.isatty())
    return is_interactive if progress is None else progress


def warn(sentence: str) -> None:
    """Issue a message as a Python warning."""
    warnings.warn(escape_controls(sentence), stacklevel=2)


def make_federation(options: Mapping[str, Any]) -> Federation:
    """Convert the data in the arguments of :func:`run` to a federation.

    Inputs in float64 are converted to float32, unless the model has float64 parameters.
    """
    model, clients, client_ids = options["model"], options["clients"], options["client_ids"]
    if not isinstance(model, nn.Module):
        raise CadisError(f"The model must be a torch.nn.Module, not a {type(model).__name__}.")
    if any(map(is_lazy, model.parameters())):
        raise CadisError(
            "The model has layers that wait for their first input; call it on a batch before."
        )
    client_ids = check_list("client_ids", client_ids)
    if isinstance(clients, Mapping) and not client_ids:
        client_ids = [*clients]
    data = _convert_data(clients, "Client")
    has_float64 = any(parameter.dtype == torch.float64 for parameter in model.parameters())
    convert = (lambda samples: samples) if has_float64 else to_float32
    ids = tuple(client_ids) or tuple(range(len(data)))
    client_tests = _convert_client_tests(options["client_tests"], ids)
    test, true_clusters = options["test"], options["true_clusters"]
    if test is None and not any(map(len, client_tests)):
        raise CadisError("There is no test data; give a test set as test.")
    if test is not None:
        test_set = as_samples(test, "The test set")
    else:
        test_set = concatenate([*filter(len, client_tests)])
    return Federation(
        clients=data if isinstance(data, Subsets) else [convert(samples) for samples in data],
        test=convert(test_set),
        client_ids=tuple(client_ids),
        true_clusters=None if true_clusters is None else _convert_clusters(true_clusters),
        client_tests=[
            convert(tests if len(tests) else test_set.take(slice(0, 0))) for tests in client_tests
        ],
    )


def _convert_data(data: Any, subject: str) -> Sequence[Samples]:
    """Return the samples of each client; ``subject`` begins error messages."""
    if isinstance(data, Subsets):  # keep them: they share one tensor
        return data
    if not isinstance(data, Iterable):
        raise CadisError(
            f"The clients must be a list or dict of (inputs, labels), not a {type(data).__name__}."
        )
    return [*to_samples_by_client(data, subject).values()]


def _convert_client_tests(data: Any, ids: Sequence[ClientId]) -> Sequence[Samples]:
    """Return the test samples of each client, which may be empty; () if there are none at all."""
    if isinstance(data, Mapping):
        named = to_samples_by_client(data, "The test data of")
        if unknown := named.keys() - set(map(str, ids)):
            raise CadisError(
                f"client_tests has test data of {min(unknown)}, but there is no such client."
            )
        empty = Samples(torch.zeros(0), torch.zeros(0, dtype=torch.int64))
        return [named.get(str(client), empty) for client in ids] if named else ()
    tests = _convert_data(data, "The test data of")
    if len(tests) not in (0, len(ids)):
        raise CadisError(
            f"client_tests has {len(tests)} entries, but there are {len(ids)} clients; give one "
            "entry per client, or a dict by client name."
        )
    return tests


def _convert_speeds(
    speeds: str | Mapping[ClientId, float] | Sequence[float], client_ids: Sequence[ClientId]
) -> object:
    """Convert speeds to the form that the settings validate."""
    if isinstance(speeds, Mapping):
        return select_speeds(speeds, client_ids, "The argument speeds")
    return speeds if isinstance(speeds, str) else tuple(check_list("speeds", speeds))


def _convert_clusters(clusters: Sequence[int]) -> Tensor:
    """Convert the true clusters to a tensor of integers, (clients,)."""
    entries = check_list("true_clusters", clusters)
    try:
        numbers = torch.as_tensor(entries)
    except (TypeError, ValueError, RuntimeError):
        numbers = torch.zeros(())  # not convertible, such as strings; an error below
    if numbers.dim() != 1 or numbers.is_floating_point() or numbers.is_complex():
        raise CadisError("true_clusters must be a list of integers, one per client.")
    return numbers.long()


@contextmanager
def open_folder(out: Path | str | None) -> Iterator[Path]:
    """Yield the folder ``out``, or a temporary folder if it is None."""
    if out is not None:
        yield expand_home(out)
        return
    with tempfile.TemporaryDirectory(prefix="cadis-") as path:
        yield Path(path)
