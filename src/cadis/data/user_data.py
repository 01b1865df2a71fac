"""``FILE.py:FUNCTION``: data that a user's own function returns."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from cadis._io import NO_CALLBACKS, Callbacks, format_error, load_user_code, take_at_most
from cadis.data.conversion import as_samples, get_class_names, to_float32
from cadis.data.holdout import hold_out_tenth_per_class
from cadis.data.samples import Dataset, Samples, concatenate, group_indices_by_client
from cadis.errors import CadisError

_KEYS = ("clients", "test", "client_tests", "classes")
_MAX_CLIENTS = 1_000_000
"""Maximum number of clients; a generator may be endless."""

_FORMAT = (
    '{"clients": {name: data}, "test": data}, where data are inputs and labels, or a '
    "torch.utils.data.Dataset"
)


def load_user_data(name: str, callbacks: Callbacks) -> Dataset:
    """Call a user's function ``FILE.py:FUNCTION`` and convert its result to a dataset."""
    function = load_user_code(name)
    if not callable(function):
        raise CadisError(f"{name} is not a function; name one that returns data.")
    try:
        data = function()
    except (KeyboardInterrupt, CadisError):
        raise
    except BaseException as error:  # the user's code may raise any exception, also SystemExit
        raise CadisError(f"{name} could not load its data: {format_error(error)}.") from error
    return as_dataset(data, name, callbacks)


def as_dataset(data: object, name: str, callbacks: Callbacks = NO_CALLBACKS) -> Dataset:
    """Convert a user's data to a dataset.

    Args:
        data: one of: a :class:`Dataset`; a tuple ``(clients, test)``; or a dict with the keys
            ``clients`` and optionally ``test``, ``client_tests`` and ``classes``. ``clients`` is a
            list with the data of each client, or a dict by client name; :func:`as_samples` lists
            the types for the data of a client. Without test data, a tenth of each class is held
            out.
        name: name of the dataset.
        callbacks: called with warnings.

    Example:
        >>> import torch
        >>> from cadis.data import as_dataset
        >>> def make_data(n):
        ...     return torch.rand(n, 3), torch.arange(n) % 2
        >>> clients = {"ann": make_data(20), "bob": make_data(30)}
        >>> dataset = as_dataset({"clients": clients, "test": make_data(10)}, "mine")
        >>> len(dataset.train), len(dataset.test), list(dataset.client_indices)
        (50, 10, ['ann', 'bob'])
    """
    if isinstance(data, Dataset):
        _check_dataset(data)
        return replace(data, name=name)
    if isinstance(data, tuple | list) and len(data) == 2:
        data = dict(zip(_KEYS[:2], data, strict=True))
    if not isinstance(data, Mapping) or "clients" not in data or not {*data} <= {*_KEYS}:
        raise CadisError(f"{name} must return a cadis.data.Dataset or {_FORMAT}.")
    clients = to_samples_by_client(data["clients"], "Client")
    for client in [client for client, samples in clients.items() if not len(samples)]:
        callbacks.say(f"Client {client} has no samples; it is left out.")
        del clients[client]
    if not clients:
        raise CadisError(f"{name} returned no client with samples; return at least one.")
    classes = data.get("classes") or get_class_names(_get_first(data["clients"]))
    clients = {client: to_float32(samples) for client, samples in clients.items()}
    _check_same_format(clients)
    for client, samples in clients.items():  # here the error can name the user's own indices
        samples.check_finite(f"Client {client}")
    train = concatenate([*clients.values()])
    dataset = Dataset(name, train, train, (), _list_ranges(clients))
    return _add_classes(_add_tests(dataset, data), tuple(map(str, classes)))


def _check_dataset(dataset: Dataset) -> None:
    """Raise an error if samples of a user's dataset have the wrong format, or no class."""
    parts = {"The training set": dataset.train, "The test set": dataset.test}
    tests = {name: part for name, part in dataset.client_tests.items() if len(part)}
    parts |= {f"The test data of {name}": part for name, part in tests.items()}
    for subject, samples in parts.items():
        samples.check_format(subject)
        if int(samples.labels.max()) >= dataset.num_classes:
            raise CadisError(
                f"{subject} has the label {int(samples.labels.max())}, but only "
                f"{dataset.num_classes} classes have names; name all classes, numbered from 0."
            )


def to_samples_by_client(data: Any, subject: str) -> dict[str, Samples]:
    """Convert the data of each client to samples; the keys of the result are client names.

    Args:
        data: a dict with client names as keys, or an iterable, whose clients are named 0, 1, ...
        subject: word before the client's name in error messages, for example ``"Client"``.
    """
    if isinstance(data, Mapping):
        pairs = [(str(name), client) for name, client in data.items()]
    elif isinstance(data, Iterable):
        clients = take_at_most(data, _MAX_CLIENTS, "The list of clients")
        pairs = [(str(index), client) for index, client in enumerate(clients)]
    else:
        raise CadisError(f"The clients must be a dict or a list, not a {type(data).__name__}.")
    return {name: as_samples(client, f"{subject} {name}") for name, client in pairs}


def _get_first(clients: Any) -> object:
    """Return the data of the first client, from which class names can be read."""
    if isinstance(clients, Mapping):
        return next(iter(clients.values()), None)
    return clients[0] if isinstance(clients, list | tuple) and clients else None


def _add_tests(dataset: Dataset, data: Mapping[str, Any]) -> Dataset:
    """Add the test set, and the test data of each client."""
    tests = to_samples_by_client(data.get("client_tests") or {}, "The test data of")
    client_tests = {client: to_float32(test) for client, test in tests.items() if len(test)}
    if unknown := client_tests.keys() - dataset.client_indices.keys():
        raise CadisError(
            f"client_tests has test data of {min(unknown)}, which is not a client; add it to "
            "clients, or remove its test data."
        )
    first = {next(iter(dataset.client_indices)): dataset.train}
    if data.get("test") is not None:
        test = to_float32(as_samples(data["test"], "The test set"))
        _check_same_format({**first, "The test set": test, **client_tests})
        return replace(dataset, test=test, client_tests=client_tests)
    if client_tests:
        _check_same_format({**first, **client_tests})
        for client, samples in client_tests.items():
            samples.check_finite(f"The test data of client {client}")
        test = concatenate([*client_tests.values()])
        return replace(dataset, test=test, client_test_indices=_list_ranges(client_tests))
    return _hold_out_test(dataset)


def _hold_out_test(dataset: Dataset) -> Dataset:
    """Move a tenth of each class to the test set; the samples keep their client."""
    clients = [client for client, indices in dataset.client_indices.items() for _ in indices]
    is_test = hold_out_tenth_per_class(dataset.train.labels.tolist(), clients)
    if not is_test.any():
        raise CadisError("There are too few samples to hold some out; return test data as well.")
    pairs = [*zip(clients, is_test.tolist(), strict=True)]
    train_clients = [client for client, is_held_out in pairs if not is_held_out]
    test_clients = [client for client, is_held_out in pairs if is_held_out]
    return replace(
        dataset,
        train=dataset.train.take(~is_test),
        test=dataset.train.take(is_test),
        client_indices=group_indices_by_client(train_clients),
        client_test_indices=group_indices_by_client(test_clients),
    )


def _add_classes(dataset: Dataset, names: tuple[str, ...]) -> Dataset:
    """Add the names of the classes; by default, a class has its number as its name."""
    parts = (dataset.train, dataset.test, *dataset.client_tests.values())
    highest = max(int(part.labels.max()) for part in parts if len(part))
    if names and highest >= len(names):
        raise CadisError(
            f"There is a label {highest}, but only {len(names)} classes have names; name all "
            "classes, numbered from 0."
        )
    return replace(dataset, classes=names or tuple(map(str, range(highest + 1))))


def _check_same_format(parts: Mapping[str, Samples]) -> None:
    """Raise an error if the parts differ in shape, type or scaling of their inputs."""
    first_name, first = next(iter(parts.items()))
    for name, samples in parts.items():
        samples.check_format(name)
        if (samples.input_format, samples.scaling) != (first.input_format, first.scaling):
            raise CadisError(
                f"{name} has inputs of {samples.input_format}, but {first_name} has inputs of "
                f"{first.input_format}; use the same shape, type and scaling for all."
            )


def _list_ranges(parts: Mapping[str, Samples]) -> dict[str, Tensor]:
    """Return the indices of each part in the concatenation of all parts."""
    sizes = [len(part) for part in parts.values()]
    return dict(zip(parts, torch.arange(sum(sizes)).split(sizes), strict=True))
